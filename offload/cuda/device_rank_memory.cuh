// The memory of a rank on a GPU, for collectives: copies, also from other GPUs of the process, and sums by a kernel, on a stream
// of their own. Not here: the kernel (rank_sum.cuh).
#pragma once

#include <memory>

#include "collectives/rank_memory.h"
#include "memory/runtime/runtime.h"
#include "offload/cuda/rank_sum.cuh"

namespace spillway::cuda {

class DeviceRankMemory final : public RankMemory {
 public:
  explicit DeviceRankMemory(Runtime& runtime)
      : runtime_(runtime), stream_(runtime.make_stream()), queue_(queue_on(stream_->native_handle())) {}

  void copy(std::byte* target, const std::byte* source, Bytes bytes) override {
    stream_->copy_async(target, source, bytes);
    has_work_ = true;
  }
  void sum(std::span<const float* const> of, std::int64_t elements, float* out) override {
    runtime_.enter();
    device_sum_over_ranks(queue_, of, elements, out);
    has_work_ = true;
  }
  void finish() override {
    if (std::exchange(has_work_, false)) stream_->synchronize();
  }
  bool reaches_others() const override { return false; }

 private:
#if defined(__CUDACC__)
  static Queue queue_on(void* stream) { return Queue(static_cast<cudaStream_t>(stream)); }
#else
  static Queue queue_on(void* stream) { return Queue(stream); }
#endif

  Runtime& runtime_;
  const std::unique_ptr<Stream> stream_;
  Queue queue_;
  bool has_work_ = false;
};

}  // namespace spillway::cuda
