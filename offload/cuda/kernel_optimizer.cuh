// The optimizer's arithmetic by CUDA kernels: KernelOptimizer (offload/device.h) on one stream.
// Memory beside the plan, on the device: 8 bytes for each Ki elements of the largest block, and 16 a piece of a tensor; with
// ranks 8 for each of their nodes of a block's tree, of which a rank has a dozen or two.
// Not here: the kernels (adamw.cuh, squares.cuh, add_gradients.cuh).
#pragma once

#include <memory>

#include "memory/runtime/runtime.h"
#include "offload/cuda/adamw.cuh"
#include "offload/device.h"

namespace spillway::cuda {

class StreamOptimizer final : public KernelOptimizer {
 public:
  // All but `choices` must outlive this; the queue's stream is one of the runtime.
  StreamOptimizer(Runtime& runtime, Queue& queue, const UnitGraph& graph, const Choices& choices);

  void add_gradients(const BoundOp& op) override;
  void finish_gradient(const BoundOp& op, double* words) override;
  void norm(const double* words, float clip, double loss_scale, double* norm_and_factor) override;
  const double* block_sums() const override { return at<double>(sums_of_blocks_); }
  void update(const BoundOp& op, const AdamWSettings& settings) override;

 private:
  template <typename T>
  T* at(Bytes offset) const {
    return reinterpret_cast<T*>(memory_->data() + offset);
  }

  Queue& queue_;
  const UnitGraph& graph_;
  const StateForm form_;
  const Sharding sharding_;
  const std::vector<std::int64_t> norm_words_;  // norm_words()
  std::vector<Bytes> ranges_begin_;             // [blocks] offset of the block's ranges
  // Offsets: sums of stretches and room to add them; for the norm, begins and steps (SumOfWords), stacks and blocks' sums.
  Bytes stretches_ = 0, room_ = 0, begins_ = 0, steps_ = 0, stacks_ = 0, sums_of_blocks_ = 0;
  int depth_ = 0;
  std::optional<Allocation> memory_;  // on the device
};

}  // namespace spillway::cuda
