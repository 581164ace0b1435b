// The hashes of the state that an update reads and of the state that it leaves, taken by the threads that update, piece by piece
// while they have it in their caches: a pass of its own over the same memory takes three times as long. What was read is checked
// when all of the update is computed, and before any of it is kept.
// Not here: state that is read for the forward or backward first, which its lane checks (nvme_lane.h), where hashes are kept
// (state_extents.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "memory/plan.h"
#include "offload/bound_program.h"
#include "offload/state_extents.h"

namespace spillway {

class UpdateHashes {
 public:
  // Both must outlive this. What rests in memory is hashed at every interval-th step, when it is copied into the store.
  UpdateHashes(StateExtents& extents, const Plan& plan, std::int64_t interval);

  // Of this update from here on; it is that of `step`.
  void begin(const BoundOp& op, int slot_before, int slot_after, std::int64_t step);
  // Elements [begin, end) of the update's, before it has them and after: from any thread, each element once. `begin` is a
  // multiple of kAdamWChunk, and so is `end`, or it is the update's.
  void take_old(std::int64_t begin, std::int64_t end) { take(begin, end, &Array::old); }
  void take_new(std::int64_t begin, std::int64_t end) { take(begin, end, &Array::now); }
  // IoError where what was read is not what had been noted; else notes what there is now.
  void finish();
  // Of an update by a device whose memory the host does not see: what it changes has no hash. What rests on NVMe gets one when it
  // is written (nvme_lane.h), what rests in memory when it is copied into the store.
  void forget(const BoundOp& op, int slot_after);

 private:
  struct Array {
    int buffer = -1;  // resident
    int slot_before = 0, slot_after = 0;
    const std::byte* memory = nullptr;
    Bytes each = 0;                // of an element
    Bytes begin = 0, bytes = 0;    // of the update's part
    Bytes piece = 0, extent = 0;   // of whole ones
    std::span<std::uint64_t> old;  // [pieces]; empty where they are not wanted
    std::span<std::uint64_t> now;
  };
  void take(std::int64_t begin, std::int64_t end, std::span<std::uint64_t> Array::* pieces) const;

  StateExtents& extents_;
  const Plan& plan_;
  const std::int64_t interval_;
  std::vector<std::uint64_t> pieces_;
  std::array<Array, kStateKinds> arrays_;
  int count_ = 0;  // of arrays
};

}  // namespace spillway
