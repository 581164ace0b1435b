// The device that a plan runs on: its memory and streams, the backend that computes the passes of units, and the optimizer's
// arithmetic there. Nothing above this interface knows whether that is the CPU, a GPU or the emulation of one.
// Not here: when operations run (lane_runner.h), which device a run takes (trainer/machine/open_device.h).
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "collectives/nccl_library.h"
#include "collectives/rank_memory.h"
#include "memory/base/parallel.h"
#include "memory/plan/choices.h"
#include "memory/runtime/runtime.h"
#include "models/backend.h"
#include "offload/adamw_settings.h"
#include "offload/bound_program.h"

namespace spillway {

// The optimizer's arithmetic by kernels of a device that does not compute on the host's threads: the operations of OptimizerOps
// (optimizer_ops.h), with the same bits. All of it is enqueued on the device's compute_stream(), in the order of the calls;
// operands are on the device. Runs of one optimizer never overlap.
class KernelOptimizer {
 public:
  virtual ~KernelOptimizer() = default;
  // first += second, over the pieces of the block.
  virtual void add_gradients(const BoundOp& op) = 0;
  // Writes the block's words of `words`, Plan::norm_buffer; in compact form rounds the gradient to bf16 first.
  virtual void finish_gradient(const BoundOp& op, double* words) = 0;
  // Writes the global norm and the clip factor to norm_and_factor [2], and each block's sum of squares to block_sums() [blocks],
  // 0 of a frozen one. `words`: Plan::norm_buffer, or Plan::ranks_norm_buffer where ranks have parts. All are on the device. The
  // norm is that of the gradients over `loss_scale`; block_sums() are of the gradients as they are.
  virtual void norm(const double* words, float clip, double loss_scale, double* norm_and_factor) = 0;
  virtual const double* block_sums() const = 0;
  // AdamW on the operation's range of its block, in place.
  virtual void update(const BoundOp& op, const AdamWSettings& settings) = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual Runtime& runtime() = 0;
  virtual Backend& backend() = 0;
  // The stream on which passes and the optimizer's kernels are enqueued; null: they are complete when a call returns.
  virtual Stream* compute_stream() = 0;
  // The optimizer's kernels; null where threads of the host do that arithmetic. The graph must outlive the result.
  virtual std::unique_ptr<KernelOptimizer> make_optimizer(const UnitGraph& graph, const Choices& choices) = 0;
  // The device's memory for collectives. The pool, which adds where the device does not, must outlive the result.
  virtual std::unique_ptr<RankMemory> make_rank_memory(const ThreadPool& pool) = 0;
  // Give a name for profilers (NVTX, where it exists) to the work that the calling thread enqueues between the two calls.
  virtual void begin_range(const std::string& /*name*/) {}
  virtual void end_range() {}
  // Text that names everything but the plan that the bits of its products depend on (library, chip, algorithms); empty for the
  // CPU.
  virtual std::string identity() const = 0;
};

// The CPU as a device: its memory is the host's, or (Chain::device_host_nvme) apart from it, as a GPU's is. The pool must outlive
// it.
std::unique_ptr<Device> make_cpu_device(const ThreadPool& pool, Chain chain);
// The same around another backend, which must outlive it.
std::unique_ptr<Device> make_cpu_device(Backend& backend, Chain chain);

// --- GPUs: one of these files is linked: device_absent.cpp, or cuda/device.cu, which is also compiled for the emulation
// ---

struct GpuFacts {
  int index = 0;
  std::string name;    // "NVIDIA H200"
  int capability = 0;  // 90 for sm_90
  std::string driver;  // "CUDA 13.0"
};
struct Gpus {
  std::vector<GpuFacts> usable;
  std::string why_none;  // one line, where none is usable: no driver, no GPU, or a build without CUDA
};
// Lists the GPUs without making a context: costs nothing where there is no driver.
Gpus find_gpus();
// The device's memory, once the process has a context there: a plan may take all that is free then.
MemoryInfo free_of_gpu(int index);
// The NCCL of these GPUs; InputError where it cannot be had.
const NcclLibrary& nccl_library();
// InputError where there is no such device, or the program has no code for its chip.
// `peers`: GPUs that it copies from, other ranks'.
std::unique_ptr<Device> make_cuda_device(int index, std::span<const int> peers = {});

}  // namespace spillway
