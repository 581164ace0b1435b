#include "trainer/machine/open_device.h"

#include <fmt/core.h>

#include <algorithm>

#include "memory/base/error.h"
#include "trainer/options/validate_options.h"
#include "trainer/words/quantity.h"

namespace spillway {
namespace {

// The GPU with this index. Only a runtime knows its free memory, and the runtime makes a context: memory that the context takes
// is no longer free.
GpuHere gpu_of(const Gpus& gpus, int index) {
  if (gpus.usable.empty())
    throw InputError(
        fmt::format("--device cuda: {}", gpus.why_none),
        "Use --device cpu, or see whether `nvidia-smi` lists the GPU; `plan --profile NAME` plans for another machine.");
  for (const GpuFacts& gpu : gpus.usable) {
    if (gpu.index != index) continue;
    const MemoryInfo memory = free_of_gpu(index);
    return {.index = index, .name = gpu.name, .free = memory.free, .total = memory.total};
  }
  throw InputError(
      fmt::format("--device cuda:{}: this machine has {} that can be used, from cuda:0 on", index, gpus.usable.size()),
      "`nvidia-smi` lists them.");
}

bool is_from_loaded_run(const ResolvedOptions& resolved) {
  const auto source = resolved.sources.find("device");
  return source != resolved.sources.end() && source->second == OptionSource::loaded_run;
}

}  // namespace

void settle_device(ResolvedOptions& resolved, const LogSink& say) {
  RunOptions& options = resolved.options;
  MemoryOptions& memory = options.memory;
  if (memory.device == DeviceChoice::cpu || memory.device == DeviceChoice::cpu_apart) return;
  const Gpus gpus = find_gpus();
  if (memory.device == DeviceChoice::cuda && gpus.usable.empty() && is_from_loaded_run(resolved)) {
    if (say)
      say(fmt::format("the run was on a GPU, and goes on on the CPU: {}; losses agree to rounding, not to the bit",
                      gpus.why_none));
    memory.device = DeviceChoice::cpu;
    forget_host_of_loaded_run(resolved);
    return;
  }
  if (memory.device == DeviceChoice::automatic && gpus.usable.empty()) {
    if (memory.profile.empty()) refuse_what_needs_a_device(memory);
    return;
  }
  if (memory.device == DeviceChoice::automatic) memory.device_index = gpus.usable.front().index;
  options.gpu = gpu_of(gpus, memory.device_index);
  memory.device = DeviceChoice::cuda;
  const GpuFacts& facts = *std::ranges::find(gpus.usable, memory.device_index, &GpuFacts::index);
  if (say)
    say(fmt::format("device cuda:{}: {}, compute capability {}.{}, driver for {}, {} of {} free", facts.index, facts.name,
                    facts.capability / 10, facts.capability % 10, facts.driver, rounded_size(options.gpu->free),
                    rounded_size(options.gpu->total)));
}

std::unique_ptr<Device> open_device(const RunOptions& options, const ThreadPool& pool) {
  if (options.gpu) return make_cuda_device(options.gpu->index);
  return make_cpu_device(pool, is_apart(options) ? Chain::device_host_nvme : Chain::device_nvme);
}

}  // namespace spillway
