// An NVMe lane's operations under way: a few at once, so that the drive is busy across their borders, completed in order. State
// that they read is checked here, beside the work of the drive, unless an update checks it (update_hashes.h). Hashes of state
// that they write come from updates, too; where these do not see all of it (BoundSegment::notes_hashes), they are noted here.
// Not here: requests and their depth (nvme/store_channel.h), which extents there are (state_extents.h).
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <span>

#include "memory/base/error.h"
#include "memory/plan/plan.h"
#include "nvme/store_channel.h"
#include "offload/bound_program.h"
#include "offload/run_under_way.h"
#include "offload/state_extents.h"

namespace spillway {

class NvmeLane {
 public:
  // `channel` may be null where every operation is skipped, `extents` where contents are not checked.
  NvmeLane(StoreChannel* channel, StateExtents* extents, IoDirection direction)
      : channel_(channel), extents_(extents), direction_(direction) {}

  int under_way() const noexcept { return count_; }
  bool full() const noexcept { return count_ == kMovesUnderWay; }
  // Index, as given to start(), of the operation that finish_oldest() completes.
  int oldest() const noexcept { return entries_[first_].index; }

  // Starts an operation of a run's turn. A skipped one moves nothing and keeps its place in the order.
  void start(int index, const BoundOp& op, const Run& run, int turn, bool skip) {
    const BoundMove& move = op.move();
    SPILLWAY_CHECK(!full() && move.segments.size() <= kMostSegments, "{} operations under way, {} segments", count_,
                   move.segments.size());
    Entry entry{.index = index,
                .op = &op,
                .turn = run.set_of(turn),
                .slot_before = run.slot_before_in(turn),
                .slot_after = run.slot_after_in(turn),
                .skipped = skip};
    if (!skip) {
      std::array<IoSegment, kMostSegments> segments;
      std::size_t used = 0;
      for (const BoundSegment& segment : move.segments) {
        if (segment.notes_hashes && extents_ != nullptr && direction_ == IoDirection::write && segment.buffer >= 0)
          extents_->note(segment.buffer, entry.slot_of(segment), segment.begin,
                         {segment.memory, static_cast<std::size_t>(segment.bytes)});
        segments[used++] = {segment.nvme_offset[entry.slot_of(segment)], segment.memory, segment.bytes};
      }
      entry.ticket = channel_->start(direction_, {segments.data(), used});
    }
    entries_[(first_ + count_++) % kMovesUnderWay] = entry;
  }

  // True when the oldest operation is complete; waits at most `limit` for that.
  bool oldest_completes_within(std::chrono::microseconds limit) {
    const Entry& entry = entries_[first_];
    return entry.skipped || channel_->poll(entry.ticket, limit);
  }

  // Waits for the oldest operation. True when it moved bytes; false when it was skipped. Passes on the store's exceptions; the
  // operation counts as finished all the same.
  bool finish_oldest() {
    const Entry entry = entries_[first_];
    first_ = (first_ + 1) % kMovesUnderWay;
    --count_;
    if (entry.skipped) return false;
    channel_->wait(entry.ticket);
    if (extents_ != nullptr && direction_ == IoDirection::read) check(entry);
    return true;
  }

 private:
  static constexpr std::size_t kMostSegments = 8;
  struct Entry {
    int index = 0;
    const BoundOp* op = nullptr;
    TurnSet turn = kEveryTurn;
    int slot_before = 0, slot_after = 0;
    bool skipped = false;
    IoTicket ticket{};
    int slot_of(const BoundSegment& segment) const { return segment.version == Version::before ? slot_before : slot_after; }
  };

  // Checks the state that was read extent by extent, and polls the next operation under way in between.
  void check(const Entry& entry) const {
    for (const BoundSegment& segment : entry.op->move().segments) {
      if ((segment.checked_by_update & entry.turn) != 0) continue;
      const Bytes extent = extents_->extent_bytes(segment.buffer);
      for (Bytes at = 0; extent > 0 && at < segment.bytes; at += extent) {
        const Bytes bytes = std::min(extent, segment.bytes - at);
        extents_->check(segment.buffer, entry.slot_of(segment), segment.begin + at,
                        {segment.memory + at, static_cast<std::size_t>(bytes)});
        if (count_ > 0 && !entries_[first_].skipped) channel_->poll(entries_[first_].ticket);
      }
    }
  }

  StoreChannel* channel_;
  StateExtents* extents_;
  IoDirection direction_;
  std::array<Entry, kMovesUnderWay> entries_{};
  int first_ = 0, count_ = 0;
};

}  // namespace spillway
