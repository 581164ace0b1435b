#include "trainer/machine/probe.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "files/json_text.h"
#include "memory/error.h"
#include "models/cpu/cpu_scratch.h"
#include "nvme/store.h"
#include "trainer/host/interrupt.h"
#include "trainer/machine/probe_measure.h"
#include "trainer/machine/probe_work.h"
#include "trainer/machine/profile_file.h"
#include "trainer/words/size.h"

namespace spillway {

namespace {

Sampling thorough_sampling() {
  Sampling sampling{.rounds = 5, .samples = 8, .least_samples = 8, .layers_s = 2, .pass_s = 2, .disk_bytes = 64 * kGiB};
  for (SettlingRule* rule : {&sampling.writes, &sampling.reads, &sampling.both})
    *rule = {.window_s = 1, .agreeing = 10, .spread = 0.05, .least_s = 15, .most_s = 60};
  return sampling;
}

}  // namespace

ProbeResult probe(const ThreadPool& pool, const std::vector<NvmeDirectory>& directories, ProbeEffort effort) {
  const Sampling sampling = effort == ProbeEffort::thorough ? thorough_sampling() : Sampling{};
  const InterruptHandler interrupt;  // before the first byte
  std::optional<DiskMoves> disk;
  std::vector<Measurement> sustained;
  if (!directories.empty()) {
    disk.emplace(directories, sampling.disk_bytes);
    sustained = measure_sustained(*disk, sampling);
  }
  std::vector<std::vector<Measurement>> figures;  // [figures][rounds]
  for (int round = 0; round < sampling.rounds; ++round) {
    std::vector<Measurement> measurements;
    MachineProfile profile;
    const auto add = [&](std::vector<Measurement> more) {
      InterruptHandler::stop_where_requested(kNotMeasured);
      for (Measurement& measurement : more) {
        if (measurement.of.empty()) set_rate(profile, measurement.name, measurement.value);
        measurements.push_back(std::move(measurement));
      }
    };
    add(measure_compute(pool, sampling));
    add(measure_layers(pool, sampling, profile));
    add(measure_handover(sampling));
    add(measure_shared(pool, sampling));
    if (disk) {
      add(measure_requests(*disk, sampling));
      add(measure_beside(pool, *disk, sampling));
    }
    figures.resize(measurements.size());
    for (std::size_t i = 0; i < measurements.size(); ++i) figures[i].push_back(std::move(measurements[i]));
  }
  for (Measurement& measurement : sustained) figures.push_back({std::move(measurement)});
  ProbeResult result;
  for (const std::vector<Measurement>& rounds : figures) {
    Measurement all = mean_of_rounds(rounds);
    if (all.of.empty()) {
      all.value = set_rate(result.profile, all.name, all.value);
      all.least = std::min(all.least, all.value), all.most = std::max(all.most, all.value);
    }
    result.measurements.push_back(std::move(all));
  }
  result.profile.name = host_name();
  result.profile.threads = pool.threads();
  result.profile.instructions = traits_of_this_cpu(pool.threads()).instructions;
  result.profile.probed_at = utc_minute_now();
  return result;
}

double probe_seconds(const std::vector<NvmeDirectory>& directories) { return directories.empty() ? 15 : 25; }

std::optional<MeasuredProfile> profile_at_hand(const RunOptions& options, int threads) {
  if (!options.memory.profile.empty()) return profile_named(options.memory.profile);
  const auto cache = profile_cache(threads, options.memory.nvme);
  return cache ? cached_profile(*cache) : std::nullopt;
}

MeasuredProfile profile_for(const RunOptions& options, const ThreadPool& pool, const LogSink& say) {
  if (auto profile = profile_at_hand(options, pool.threads())) return *std::move(profile);
  const auto& directories = options.memory.nvme;
  const auto cache = profile_cache(pool.threads(), directories);
  if (say) {
    std::string drives;
    for (const NvmeDirectory& directory : directories)
      drives += fmt::format("{}{}", drives.empty() ? ", and what is under " : ", ", directory.path);
    say(fmt::format("measuring this machine ({} threads{}): about {:.0f} s{}", pool.threads(), drives, probe_seconds(directories),
                    cache ? fmt::format(", once; kept in {}", cache->string())
                          : "; with neither XDG_CACHE_HOME nor HOME there is no place to keep it"));
  }
  MeasuredProfile profile = probe(pool, directories, ProbeEffort::quick).profile;
  if (cache) keep_profile(*cache, profile);
  return profile;
}

namespace {

struct ShownIn {
  double unit;
  const char* word;
  bool whole;
};

ShownIn shown_in(RateUnit unit) {
  switch (unit) {
    case RateUnit::share:
      return {0.01, "%", true};
    case RateUnit::seconds:
      return {1e-6, "us", false};
    case RateUnit::rows:
      return {1, "rows", false};
    case RateUnit::requests:
      return {1e3, "k/s", false};
    case RateUnit::flops:
      return {1e9, "GFLOP/s", false};
    case RateUnit::bytes:
      return {1e9, "GB/s", false};
  }
  return {};
}

}  // namespace

std::string probe_table(const ProbeResult& result) {
  std::string table = fmt::format("{}, {} threads\n\n  {:<24}{:>14}{:>14}{:>14}{:>10}{:>9}\n", result.profile.name,
                                  result.profile.threads, "figure", "value", "least", "most", "varied by", "samples");
  for (const Measurement& m : result.measurements) {
    const ShownIn in = shown_in(rate_named(m.name)->unit);
    const auto shown = [&](double value) {
      return fmt::format("{:.{}f} {}", value / in.unit, value / in.unit < 100 && !in.whole ? 2 : 0, in.word);
    };
    table += fmt::format("  {:<24}{:>14}{:>14}{:>14}{:>8.0f} %{:>9}\n", m.of.empty() ? m.name : "  " + m.of, shown(m.value),
                         shown(m.least), shown(m.most), 100 * (m.most - m.least) / m.value, m.samples);
  }
  if (result.profile.nvme_read_bytes > 0) {
    const StoreOptions store;
    table += fmt::format(
        "\n  NVMe: requests of {}, {} in flight, as in training; mixed: reads and writes at once; requests: of {}, as of rows\n",
        exact_size(store.block_bytes), store.depth, exact_size(kSmallRequestBytes));
  }
  return table;
}

std::string probe_json(const ProbeResult& result) {
  nlohmann::ordered_json json = to_json(result.profile);
  for (const Measurement& m : result.measurements) {
    if (m.of.empty()) {
      json["samples"][m.name] = {m.least, m.most, m.samples};
    } else {
      json["samples"][fmt::format("{} {}", m.name, m.of)] = {m.value, m.least, m.most, m.samples};
    }
  }
  return json_text(json);
}

}  // namespace spillway
