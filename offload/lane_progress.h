// The progress of each lane: one counter a lane, because a lane completes its operations in order.
// Not here: which operation waits for which (the plan).
#pragma once

#include <atomic>
#include <cstdint>

#include "memory/base/types.h"

namespace spillway {

class LaneProgress {
 public:
  // True when the lane has completed `count` operations, over all runs of all programs.
  bool reached(Lane lane, std::uint32_t count) const noexcept { return passed(at(lane).load(std::memory_order_acquire), count); }
  // Returns when the lane has completed `count`. Everything that those operations wrote is visible then.
  void wait(Lane lane, std::uint32_t count) const noexcept {
    const auto& completed = at(lane);
    for (std::uint32_t seen = completed.load(std::memory_order_acquire); !passed(seen, count);
         seen = completed.load(std::memory_order_acquire)) {
      completed.wait(seen, std::memory_order_acquire);
    }
  }
  // Its own count, for the thread that completes the lane's operations.
  std::uint32_t count(Lane lane) const noexcept { return at(lane).load(std::memory_order_relaxed); }
  void complete(Lane lane) noexcept {
    counters_[lane].completed.fetch_add(1, std::memory_order_acq_rel);
    counters_[lane].completed.notify_all();
  }

 private:
  // The kernel's own wait works on 32 bits. Counts wrap, and never differ by more than the operations of a few steps.
  static bool passed(std::uint32_t completed, std::uint32_t count) noexcept {
    return static_cast<std::int32_t>(completed - count) >= 0;
  }
  struct alignas(64) Counter {
    std::atomic<std::uint32_t> completed{0};
  };
  const std::atomic<std::uint32_t>& at(Lane lane) const noexcept { return counters_[lane].completed; }
  By<Lane, Counter> counters_;
};

}  // namespace spillway
