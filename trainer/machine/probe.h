// Measures this machine for the planner.
// Not here: what the numbers mean (memory/machine.h), the file that keeps them (profile_file.h).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "memory/machine.h"
#include "memory/parallel.h"
#include "nvme/io_queue.h"
#include "trainer/machine/drive_rates.h"
#include "trainer/machine/measurement.h"
#include "trainer/options/options.h"

namespace spillway {

enum class ProbeEffort : std::uint8_t { quick, thorough };  // see probe_seconds(), or some five minutes

struct ProbeResult {
  MeasuredProfile profile;
  std::vector<Measurement> measurements;
};

// Measures matrix products, attention, passes over memory, the host optimizer, these beside one another, and the given
// directories. Its buffers take less than 112 MiB at a time and are given back when it returns.
ProbeResult probe(const ThreadPool& pool, const std::vector<NvmeDirectory>& directories, ProbeEffort effort);
// The same of a machine whose device is its GPU: that, its link to the host's memory, updates on the host, and the drives. Takes
// some GiB of both memories meanwhile.
ProbeResult probe_gpu(const RunOptions& options, const ThreadPool& pool, ProbeEffort effort);

// How long a quick one takes, about.
double probe_seconds(const std::vector<NvmeDirectory>& directories);

// The profile of `--profile`, else the one kept for this host, number of threads and the devices of the directories: nothing is
// measured.
std::optional<MeasuredProfile> profile_at_hand(const RunOptions& options, int threads);
// That, else a quick probe, which is kept; `say` is told before it begins.
MeasuredProfile profile_for(const RunOptions& options, const ThreadPool& pool, const LogSink& say);

// Who serves the products of a model of the catalogue at so many rows: a line for each implementation, and how many of its
// products could be served better.
std::string products_in_words(std::string_view model, std::int64_t rows);

std::string probe_table(const ProbeResult& result);
// The profile with `samples`: [least, most, number] of each figure, and of its parts with their value first. --profile takes it.
std::string probe_json(const ProbeResult& result);

}  // namespace spillway
