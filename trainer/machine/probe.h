// Measures this machine for the planner.
// Not here: the meaning of the figures (memory/plan/machine.h), the file that keeps them (profile_file.h).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "memory/base/parallel.h"
#include "memory/plan/machine.h"
#include "nvme/io_queue.h"
#include "trainer/machine/drive_rates.h"
#include "trainer/machine/measurement.h"
#include "trainer/options/options.h"

namespace spillway {

enum class ProbeEffort : std::uint8_t { quick, thorough };  // quick: see probe_seconds(); thorough: some five minutes

struct ProbeResult {
  MeasuredProfile profile;
  std::vector<Measurement> measurements;
};

// Measures matrix products, attention, passes over memory, the host optimizer, some of these side by side, and the given
// directories. Its buffers take less than 112 MiB at a time and are freed when it returns.
ProbeResult probe(const ThreadPool& pool, const std::vector<NvmeDirectory>& directories, ProbeEffort effort);
// The same for a machine whose device is its GPU: the GPU, its link to the host's memory, updates on the host, and the drives.
// Takes some GiB of both memories while it runs.
ProbeResult probe_gpu(const RunOptions& options, const ThreadPool& pool, ProbeEffort effort);

// About how many seconds a quick probe takes.
double probe_seconds(const std::vector<NvmeDirectory>& directories);

// The profile of `--profile`, else the kept profile for this host, its number of threads and the devices of the directories.
// Measures nothing.
std::optional<MeasuredProfile> profile_at_hand(const RunOptions& options, int threads);
// The same, else runs a quick probe and keeps the result; `say` is told before the probe begins.
MeasuredProfile profile_for(const RunOptions& options, const ThreadPool& pool, const LogSink& say);

// Lists the implementations that serve the products of a catalogue model at `rows` rows: one line for each implementation, with
// the number of its products and of those that could be served better.
std::string products_in_words(std::string_view model, std::int64_t rows);

std::string probe_table(const ProbeResult& result);
// The profile as JSON with `samples`: [least, most, number] of each figure, and of its parts with their value first. --profile
// reads it.
std::string probe_json(const ProbeResult& result);

}  // namespace spillway
