// Hashes of the state that an update reads and of the state that it leaves. The threads that update take them, piece by piece
// while the state is in their caches: a pass of its own over the same memory takes three times as long. The state that was read
// is checked when all of the update is computed, before any of it is kept.
// Not here: state that is read for the forward or backward first, which its lane checks (nvme_lane.h), where hashes are kept
// (state_extents.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "memory/plan/plan.h"
#include "offload/bound_program.h"
#include "offload/state_extents.h"

namespace spillway {

class UpdateHashes {
 public:
  // Both must outlive this. State in memory is hashed at every interval-th step, when it is copied into the store.
  UpdateHashes(StateExtents& extents, const Plan& plan, std::int64_t interval);

  // Begins the hashes of an update, which belongs to `step`.
  void begin(const BoundOp& op, int slot_before, int slot_after, std::int64_t step);
  // Take elements [begin, end) of the update before and after it computes them: from any thread, each element once. `begin` is a
  // multiple of kAdamWChunk; `end` is one, too, or is the update's end.
  void take_old(std::int64_t begin, std::int64_t end) { take(begin, end, &Array::old); }
  void take_new(std::int64_t begin, std::int64_t end) { take(begin, end, &Array::now); }
  // Throws IoError where the state that was read does not have its noted hash; else notes the new hashes.
  void finish();
  // Forgets the hashes of state that an update changes on a device whose memory the host does not see; begin() does so for a
  // weight of which the update has only a rank's part. State on NVMe gets a hash when it is written (nvme_lane.h), state in
  // memory when it is copied into the store.
  void forget(const BoundOp& op, int slot_after);

 private:
  struct Array {
    int buffer = -1;  // resident
    int slot_before = 0, slot_after = 0;
    const std::byte* memory = nullptr;
    Bytes each = 0;                // bytes of an element
    Bytes begin = 0, bytes = 0;    // range of the update's part in the array
    Bytes piece = 0, extent = 0;   // bytes of a whole piece, of a whole extent
    std::span<std::uint64_t> old;  // [pieces]; empty where they are not wanted
    std::span<std::uint64_t> now;
  };
  void take(std::int64_t begin, std::int64_t end, std::span<std::uint64_t> Array::* pieces) const;
  void forget_range(int buffer, int slot, Bytes begin, Bytes end);

  StateExtents& extents_;
  const Plan& plan_;
  const std::int64_t interval_;
  std::vector<std::uint64_t> pieces_;
  std::array<Array, kStateKinds> arrays_;
  int count_ = 0;  // arrays in use
};

}  // namespace spillway
