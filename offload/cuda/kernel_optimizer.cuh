// The optimizer's arithmetic by CUDA kernels: KernelOptimizer (offload/device.h) on one stream.
// Memory beside the plan, on the device: 8 bytes for each Ki elements of the largest block, and 16 a piece of a tensor.
// Not here: the kernels (adamw.cuh, squares.cuh, add_gradients.cuh).
#pragma once

#include <memory>

#include "memory/runtime/runtime.h"
#include "offload/cuda/adamw.cuh"
#include "offload/device.h"

namespace spillway::cuda {

class StreamOptimizer final : public KernelOptimizer {
 public:
  // All but `form` must outlive this; the queue's stream is one of the runtime.
  StreamOptimizer(Runtime& runtime, Queue& queue, const UnitGraph& graph, StateForm form);

  void add_gradients(const BoundOp& op) override;
  void finish_gradient(const BoundOp& op, double* square) override;
  void norm(const double* squares, std::int64_t count, float clip, double* norm_and_factor) override;
  void update(const BoundOp& op, const AdamWSettings& settings) override;

 private:
  Queue& queue_;
  const UnitGraph& graph_;
  const StateForm form_;
  std::vector<Bytes> ranges_begin_;  // [blocks] offset in `memory_` of the block's ranges
  Bytes nodes_begin_ = 0, sums_begin_ = 0;
  std::optional<Allocation> memory_;  // on the device: a CountedRange for each piece, sums of nodes, room to add them
};

}  // namespace spillway::cuda
