#include "trainer/machine/probe.h"

#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "files/json_text.h"
#include "memory/base/error.h"
#include "models/build.h"
#include "models/catalogue/catalogue.h"
#include "models/cpu/cpu_backend.h"
#include "models/cpu/cpu_scratch.h"
#include "models/cpu/ops.h"
#include "nvme/store.h"
#include "trainer/host/interrupt.h"
#include "trainer/machine/open_device.h"
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

using AddMeasurements = std::function<void(std::vector<Measurement>)>;

// Runs rounds of measurements, each of which samples every figure a little. `sustained` figures were measured before the rounds.
ProbeResult in_rounds(int rounds, const std::function<void(const MachineProfile& so_far, const AddMeasurements& add)>& round,
                      std::vector<Measurement> sustained) {
  std::vector<std::vector<Measurement>> figures;  // [figures][rounds]
  for (int i = 0; i < rounds; ++i) {
    std::vector<Measurement> measurements;
    MachineProfile profile;
    round(profile, [&](std::vector<Measurement> more) {
      InterruptHandler::stop_where_requested(kNotMeasured);
      for (Measurement& measurement : more) {
        if (measurement.of.empty()) set_rate(profile, measurement.name, measurement.value);
        measurements.push_back(std::move(measurement));
      }
    });
    figures.resize(measurements.size());
    for (std::size_t k = 0; k < measurements.size(); ++k) figures[k].push_back(std::move(measurements[k]));
  }
  for (Measurement& measurement : sustained) figures.push_back({std::move(measurement)});
  ProbeResult result;
  for (const std::vector<Measurement>& of_rounds : figures) {
    Measurement all = mean_of_rounds(of_rounds);
    if (all.of.empty()) {
      all.value = set_rate(result.profile, all.name, all.value);
      all.least = std::min(all.least, all.value), all.most = std::max(all.most, all.value);
    }
    result.measurements.push_back(std::move(all));
  }
  return result;
}

Sampling sampling_of(ProbeEffort effort) { return effort == ProbeEffort::thorough ? thorough_sampling() : Sampling{}; }

void say_where(MachineProfile& profile, std::string& probed_at, std::string name, int threads) {
  profile.name = std::move(name);
  profile.threads = threads;
  profile.instructions = traits_of_this_cpu(threads).instructions;
  probed_at = utc_minute_now();
}

}  // namespace

ProbeResult probe(const ThreadPool& pool, const std::vector<NvmeDirectory>& directories, ProbeEffort effort) {
  const Sampling sampling = sampling_of(effort);
  const InterruptHandler interrupt;  // before the first byte
  std::optional<DiskMoves> disk;
  std::vector<Measurement> sustained;
  if (!directories.empty()) {
    disk.emplace(directories, sampling.disk_bytes);
    sustained = measure_sustained(*disk, sampling);
  }
  ProbeResult result = in_rounds(
      sampling.rounds,
      [&](const MachineProfile& so_far, const AddMeasurements& add) {
        add(measure_compute(pool, sampling));
        add(measure_layers(pool, sampling, so_far));
        add(measure_handover(sampling));
        add(measure_shared(pool, sampling));
        if (!disk) return;
        add(measure_requests(*disk, sampling));
        add(measure_beside(pool, *disk, sampling));
      },
      std::move(sustained));
  say_where(result.profile, result.profile.probed_at, host_name(), pool.threads());
  return result;
}

ProbeResult probe_gpu(const RunOptions& options, const ThreadPool& pool, ProbeEffort effort) {
  const Sampling sampling = sampling_of(effort);
  const InterruptHandler interrupt;  // before the first byte
  std::optional<DiskMoves> disk;
  std::vector<Measurement> sustained;
  if (!options.memory.nvme.empty()) {
    disk.emplace(options.memory.nvme, sampling.disk_bytes);
    sustained = measure_sustained(*disk, sampling);
  }
  const std::unique_ptr<Device> device = open_device(options, pool);
  const Gpus gpus = find_gpus();
  const auto another =
      std::ranges::find_if(gpus.usable, [&](const GpuFacts& gpu) { return gpu.index != options.gpu->of_ranks.front(); });
  const std::unique_ptr<Device> other =
      another == gpus.usable.end() ? nullptr : make_cuda_device(another->index, options.gpu->of_ranks);
  ProbeResult result = in_rounds(
      sampling.rounds,
      [&](const MachineProfile&, const AddMeasurements& add) {
        add(measure_gpu(*device, other.get(), pool, sampling));
        if (disk) add(measure_requests(*disk, sampling));
      },
      std::move(sustained));
  say_where(result.profile, result.profile.probed_at, fmt::format("{} with {}", host_name(), options.gpu->name), pool.threads());
  result.profile.devices = static_cast<int>(gpus.usable.size());
  result.profile.tier_bytes[Tier::device] = options.gpu->total;
  result.profile.tier_bytes[Tier::host] = Runtime::make_cpu()->memory_info().total;
  return result;
}

double probe_seconds(const std::vector<NvmeDirectory>& directories) { return directories.empty() ? 15 : 25; }

std::optional<MeasuredProfile> profile_at_hand(const RunOptions& options, int threads) {
  if (!options.memory.profile.empty()) return profile_named(options.memory.profile);
  const auto cache = profile_cache(threads, options.memory.nvme, options.gpu);
  return cache ? cached_profile(*cache) : std::nullopt;
}

MeasuredProfile profile_for(const RunOptions& options, const ThreadPool& pool, const LogSink& say) {
  if (auto profile = profile_at_hand(options, pool.threads())) return *std::move(profile);
  const auto& directories = options.memory.nvme;
  const auto cache = profile_cache(pool.threads(), directories, options.gpu);
  if (say) {
    std::string drives;
    for (const NvmeDirectory& directory : directories)
      drives += fmt::format("{}{}", drives.empty() ? ", and what is under " : ", ", directory.path);
    say(fmt::format("measuring this machine ({} threads{}{}): about {:.0f} s{}", pool.threads(),
                    options.gpu ? ", " + options.gpu->name : "", drives, probe_seconds(directories),
                    cache ? fmt::format(", once; kept in {}", cache->string())
                          : "; with neither XDG_CACHE_HOME nor HOME there is no place to keep it"));
  }
  MeasuredProfile profile =
      (options.gpu ? probe_gpu(options, pool, ProbeEffort::quick) : probe(pool, directories, ProbeEffort::quick)).profile;
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
    case RateUnit::share: return {0.01, "%", true};
    case RateUnit::seconds: return {1e-6, "us", false};
    case RateUnit::rows: return {1, "rows", false};
    case RateUnit::requests: return {1e3, "k/s", false};
    case RateUnit::flops: return {1e9, "GFLOP/s", false};
    case RateUnit::bytes: return {1e9, "GB/s", false};
  }
  return {};
}

}  // namespace

std::string products_in_words(std::string_view model, std::int64_t rows) {
  const CompiledModel compiled = build_model(
      catalogue_config(model), {.dtype = DType::bfloat16, .micro_batch = 1, .sequence = rows, .head = HeadMode::tiled});
  ops::MatmulEngine engine(1);
  std::map<std::string, std::pair<int, int>> counts;  // all products, and those that could be served better
  for (const ops::GemmSpec& spec : products_of(compiled)) {
    for (const ops::ServedProduct& served : engine.served_by(spec)) {
      auto& [all, worse] = counts[served.by];
      ++all;
      worse += served.could_be_better() ? 1 : 0;
    }
  }
  std::string words = fmt::format("bf16 products of {} at {} tokens, by who serves them:\n", model, rows);
  for (const auto& [name, count] : counts) {
    words += fmt::format("  {:<32}{}{}\n", name, count.first,
                         count.second > 0 ? fmt::format(", of which {} could be served better", count.second) : "");
  }
  return words;
}

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
