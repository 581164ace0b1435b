// What a plan runs on: memory and streams, who computes the passes of units, and who does the optimizer's arithmetic there.
// The seam is here: nothing above it knows whether that is the CPU, a GPU or the emulation of one.
// Not here: what is computed when (lane_runner.h), which device a run takes (trainer/machine/open_device.h).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "memory/parallel.h"
#include "memory/runtime.h"
#include "models/backend.h"
#include "offload/adamw_settings.h"
#include "offload/bound_program.h"

namespace spillway {

// The optimizer's arithmetic by kernels of a device that does not compute on the host's threads: the bits of OptimizerOps
// (optimizer_ops.h), whose operations these are. All of it is enqueued on the device's compute_stream(), in the order of the
// calls; operands are on the device. Runs of one never overlap.
class KernelOptimizer {
 public:
  virtual ~KernelOptimizer() = default;
  // first += second, over the pieces of the block.
  virtual void add_gradients(const BoundOp& op) = 0;
  // The block's sum of squares to *square, a word on the device; in compact form the gradient is rounded to bf16 first.
  virtual void finish_gradient(const BoundOp& op, double* square) = 0;
  // The global norm of `count` squares, all blocks', and the clip factor, to norm_and_factor [2]: all on the device.
  virtual void norm(const double* squares, std::int64_t count, float clip, double* norm_and_factor) = 0;
  // AdamW on the operation's range of its block, in place.
  virtual void update(const BoundOp& op, const AdamWSettings& settings) = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual Runtime& runtime() = 0;
  virtual Backend& backend() = 0;
  // Where passes and the optimizer's kernels are enqueued; null: they are complete when a call returns.
  virtual Stream* compute_stream() = 0;
  // Null where threads of the host do that arithmetic. The graph must outlive the result.
  virtual std::unique_ptr<KernelOptimizer> make_optimizer(const UnitGraph& graph, StateForm form) = 0;
  // Around what the calling thread enqueues: a name for profilers (NVTX), where there is one for them.
  virtual void begin_range(const std::string& /*name*/) {}
  virtual void end_range() {}
  // What the bits of its products depend on beside the plan (library, chip, algorithms), as text; empty for the CPU.
  virtual std::string identity() const = 0;
};

// The CPU: its memory is the host's, or (Chain::device_host_nvme) apart from it, as a GPU's is. The pool must outlive it.
std::unique_ptr<Device> make_cpu_device(const ThreadPool& pool, Chain chain);
// The same around another backend, which must outlive it.
std::unique_ptr<Device> make_cpu_device(Backend& backend, Chain chain);

// --- GPUs: which of the twins is linked says what there is (device_absent.cpp, cuda/device.cu, and that one for the emulation)
// ---

struct GpuFacts {
  int index = 0;
  std::string name;    // "NVIDIA H200"
  int capability = 0;  // 90 for sm_90
  std::string driver;  // "CUDA 13.0"
};
struct Gpus {
  std::vector<GpuFacts> usable;
  std::string why_none;  // where none is: no driver, none there, a build without CUDA; one line
};
// Looks, and makes no context: costs nothing where there is no driver.
Gpus find_gpus();
// Of the device's memory, once the process has a context there: what is free then is what a plan may take.
MemoryInfo free_of_gpu(int index);
// InputError where there is no such device, or the program has no code for its chip.
std::unique_ptr<Device> make_cuda_device(int index);

}  // namespace spillway
