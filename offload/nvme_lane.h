// An NVMe lane's operations under way: a few at once, so that the device is busy across their borders, completed in order.
// Not here: requests and their depth (nvme/store_channel.h).
#pragma once

#include <array>
#include <vector>

#include "memory/error.h"
#include "nvme/store_channel.h"
#include "offload/bound_program.h"

namespace spillway {

class NvmeLane {
 public:
  // `channel` may be null where every operation is skipped.
  NvmeLane(StoreChannel* channel, IoDirection direction) : channel_(channel), direction_(direction) {}

  int under_way() const noexcept { return count_; }
  bool full() const noexcept { return count_ == kMost; }
  // Index, as given to start(), of the operation that finish_oldest() completes.
  int oldest() const noexcept { return entries_[first_].index; }

  // A skipped operation moves nothing and keeps its place in the order.
  void start(int index, const BoundOp& op, int slot_before, int slot_after, bool skip) {
    SPILLWAY_CHECK(!full() && op.segments.size() <= kMostSegments, "{} operations under way, {} segments", count_,
                   op.segments.size());
    Entry entry{.index = index, .skipped = skip};
    if (!skip) {
      std::array<IoSegment, kMostSegments> segments;
      std::size_t used = 0;
      for (const BoundSegment& segment : op.segments) {
        const int slot = segment.slot == Slot::before ? slot_before : slot_after;
        segments[used++] = {segment.nvme_offset[slot], segment.memory, segment.bytes};
      }
      entry.ticket = channel_->start(direction_, {segments.data(), used});
    }
    entries_[(first_ + count_++) % kMost] = entry;
  }

  // Waits for it, and says whether it moved anything. Throws what the store throws; the operation counts as finished all the
  // same.
  bool finish_oldest() {
    const Entry entry = entries_[first_];
    first_ = (first_ + 1) % kMost;
    --count_;
    if (!entry.skipped) channel_->wait(entry.ticket);
    return !entry.skipped;
  }

 private:
  static constexpr int kMost = 8;
  static constexpr std::size_t kMostSegments = 8;
  struct Entry {
    int index = 0;
    bool skipped = false;
    IoTicket ticket{};
  };
  StoreChannel* channel_;
  IoDirection direction_;
  std::array<Entry, kMost> entries_{};
  int first_ = 0, count_ = 0;
};

}  // namespace spillway
