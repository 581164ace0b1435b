#include "trainer/machine/open_device.h"

#include <fmt/core.h>

#include <algorithm>

#include "memory/base/error.h"
#include "trainer/options/validate_options.h"
#include "trainer/words/quantity.h"

namespace spillway {
namespace {

const GpuFacts& facts_of(const Gpus& gpus, int index) {
  for (const GpuFacts& gpu : gpus.usable) {
    if (gpu.index == index) return gpu;
  }
  throw InputError(fmt::format("--device cuda:{}: this machine has {} that can be used, from cuda:0 on", index,
                               counted(gpus.usable.size(), "GPU")),
                   "`nvidia-smi` lists them.");
}

// The GPU of each rank of this host.
std::vector<int> gpus_of_ranks(const Gpus& gpus, const RunOptions& options) {
  const auto ranks = static_cast<std::size_t>(options.parallel.ranks_here());
  const std::vector<int>& named = options.memory.gpus;
  if (gpus.usable.empty())
    throw InputError(
        fmt::format("--device cuda: {}", gpus.why_none),
        "Use --device cpu, or see whether `nvidia-smi` lists the GPU; `plan --profile NAME` plans for another machine.");
  if (!named.empty()) {
    if (named.size() == ranks) return named;
    throw InputError(fmt::format("--device: found {} with {} on this host, allowed: one for each rank",
                                 counted(named.size(), "GPU"), counted(ranks, "rank")));
  }
  if (gpus.usable.size() < ranks)
    throw InputError(fmt::format("--ranks: {} on this host, which has {} that can be used, and each rank takes one", ranks,
                                 counted(gpus.usable.size(), "GPU")),
                     "Use fewer ranks, or --device cpu; --device cuda:0,0 lets two ranks share a GPU.");
  std::vector<int> first;
  for (std::size_t rank = 0; rank < ranks; ++rank) first.push_back(gpus.usable[rank].index);
  return first;
}

// The GPUs of the ranks of this process.
std::vector<int> own_gpus(const GpuHere& here, const RunOptions& options) {
  return options.parallel.launch ? std::vector{here.of(options.parallel.launch->local_rank)} : here.of_ranks;
}

// Only a runtime knows the free memory of a GPU, and the runtime makes a context: memory that the context takes is no longer
// free. So a process looks at its own GPUs alone, at each once, and tells `say` of it.
GpuHere gpu_of(const Gpus& gpus, const RunOptions& options, const LogSink& say) {
  GpuHere here{.of_ranks = gpus_of_ranks(gpus, options)};
  for (const int index : here.of_ranks) facts_of(gpus, index);
  std::vector<int> seen;
  for (const int index : own_gpus(here, options)) {
    if (std::ranges::find(seen, index) != seen.end()) continue;
    seen.push_back(index);
    const GpuFacts& facts = facts_of(gpus, index);
    if (here.name.empty()) here.name = facts.name;
    const auto sharers = static_cast<Bytes>(std::ranges::count(here.of_ranks, index));
    const MemoryInfo memory = free_of_gpu(index);
    if (say)
      say(fmt::format("device cuda:{}: {}, compute capability {}.{}, driver for {}, {} of {} free", index, facts.name,
                      facts.capability / 10, facts.capability % 10, facts.driver, rounded_size(memory.free),
                      rounded_size(memory.total)));
    const bool is_least = here.total == 0 || memory.free / sharers < here.free;
    if (is_least) here.free = memory.free / sharers, here.total = memory.total / sharers;
  }
  return here;
}

bool is_from_loaded_run(const ResolvedOptions& resolved) {
  const auto source = resolved.sources.find("device");
  return source != resolved.sources.end() && source->second == OptionSource::loaded_run;
}

}  // namespace

namespace {

void take_device(ResolvedOptions& resolved, const LogSink& say) {
  RunOptions& options = resolved.options;
  MemoryOptions& memory = options.memory;
  if (memory.device == DeviceChoice::cpu || memory.device == DeviceChoice::cpu_apart) return;
  const Gpus gpus = find_gpus();
  if (memory.device == DeviceChoice::cuda && gpus.usable.empty() && is_from_loaded_run(resolved)) {
    if (say)
      say(fmt::format("the run was on a GPU, and goes on on the CPU: {}; losses agree to rounding, not to the bit",
                      gpus.why_none));
    memory.device = DeviceChoice::cpu;
    forget_host_of_files(resolved);
    return;
  }
  if (memory.device == DeviceChoice::automatic && gpus.usable.empty()) {
    if (memory.profile.empty()) refuse_what_needs_a_device(memory);
    return;
  }
  const std::optional<Launch>& launch = options.parallel.launch;
  const bool tells = !launch || launch->rank == 0;
  options.gpu = gpu_of(gpus, options, tells ? say : LogSink());
  memory.device = DeviceChoice::cuda;
}

}  // namespace

void settle_device(ResolvedOptions& resolved, const LogSink& say) {
  take_device(resolved, say);
  if (!resolved.options.gpu) refuse_type_of_gpus(resolved.options.precision);
}

std::unique_ptr<Device> open_device(const RunOptions& options, const ThreadPool& pool, int rank) {
  const int place = options.parallel.launch ? options.parallel.launch->local_rank : rank;
  if (options.gpu) return make_cuda_device(options.gpu->of(place), own_gpus(*options.gpu, options));
  return make_cpu_device(pool, is_apart(options) ? Chain::device_host_nvme : Chain::device_nvme);
}

}  // namespace spillway
