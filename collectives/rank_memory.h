// The memory of a rank as collectives work in it: copies into it and sums within it, by threads of the host or by a device.
// Not here: which bytes (communicator.h), what carries them between processes (transport.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "memory/base/parallel.h"
#include "memory/base/types.h"

namespace spillway {

// copy() and sum() may return before they are complete: they run in their order, and finish() waits for them. All calls come from
// one thread.
class RankMemory {
 public:
  virtual ~RankMemory() = default;
  // `source` may lie in the memory of another rank of this process.
  virtual void copy(std::byte* target, const std::byte* source, Bytes bytes) = 0;
  // As sum_over_ranks(): out[i] = sum of all of[rank][i]; `out` may be one of them.
  virtual void sum(std::span<const float* const> of, std::int64_t elements, float* out) = 0;
  virtual void finish() = 0;
  // True where sum() may read operands in the memory of other ranks of this process, in place.
  virtual bool reaches_others() const = 0;
};

// Memory that threads of the host work in: complete on return. The pool must outlive it.
class HostRankMemory final : public RankMemory {
 public:
  explicit HostRankMemory(const ThreadPool& pool) : pool_(pool) {}
  void copy(std::byte* target, const std::byte* source, Bytes bytes) override;
  void sum(std::span<const float* const> of, std::int64_t elements, float* out) override;
  void finish() override {}
  bool reaches_others() const override { return true; }

 private:
  const ThreadPool& pool_;
};

}  // namespace spillway
