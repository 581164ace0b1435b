// The hashes of all extents of the state, in each slot: noted when state is written, checked when it is read. An error names
// state that was damaged at rest or on the way, and nothing computed with it is kept. State in memory has one content, in slot 0;
// so have weights that are not trained, whatever slot the others are in.
// Not here: who takes the hashes (nvme_lane.h, update_hashes.h), records of them (committer.h).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "nvme/store.h"
#include "offload/durable_layout.h"

namespace spillway {

class StateExtents {
 public:
  // Begins with the hashes of a fresh store: all zeros. `store` is for the places that errors name; it may be null where nothing
  // rests there.
  StateExtents(DurableArrays state, const Store* store);

  // Notes the hashes of bytes [begin, begin + content.size()) of the array in a resident buffer of the plan; ignores buffers that
  // hold no state. Extents that are covered in part are unknown from then on, and not checked. Several threads may note and check
  // at a time, but none may note an extent that another touches.
  void note(int buffer, int slot, Bytes begin, std::span<const std::byte> content);
  // IoError where an extent is not what was noted: the array, the file, the offset.
  void check(int buffer, int slot, Bytes begin, std::span<const std::byte> content) const;
  // The same for the one extent that begins at `begin`, given its hash.
  void note_hash(int buffer, int slot, Bytes begin, std::uint64_t hash);
  void check_hash(int buffer, int slot, Bytes begin, std::uint64_t hash) const;
  void forget(int buffer, int slot, Bytes begin);

  // Bytes that one hash covers in a resident buffer of the plan; 0 where it holds no state. Reads and writes begin at multiples
  // of that.
  Bytes extent_bytes(int buffer) const noexcept {
    const int array = buffer < 0 ? -1 : state_.array_of_buffer[static_cast<std::size_t>(buffer)];
    return array < 0 ? 0 : state_.arrays[static_cast<std::size_t>(array)].extent_bytes;
  }
  // [extents] hashes of an array in a slot, and which of them are known.
  std::span<std::uint64_t> hashes(int array, int slot) { return slice(hashes_[slot], array); }
  std::span<std::uint8_t> known(int array, int slot) { return slice(known_[slot], array); }

 private:
  template <typename T>
  std::span<T> slice(std::vector<T>& all, int array) const {
    return std::span(all).subspan(first_[static_cast<std::size_t>(array)],
                                  static_cast<std::size_t>(state_.arrays[static_cast<std::size_t>(array)].extents()));
  }
  // The slot that an array has its content in, where that of trained state is in `slot`.
  std::size_t slot_of(int array, int slot) const {
    return static_cast<std::size_t>(array) < state_.committed ? static_cast<std::size_t>(slot) : 0;
  }
  std::size_t place(int array, Bytes begin) const {
    return first_[static_cast<std::size_t>(array)] +
           static_cast<std::size_t>(begin / state_.arrays[static_cast<std::size_t>(array)].extent_bytes);
  }
  [[noreturn]] void refuse(int array, int slot, Bytes begin, Bytes bytes, std::uint64_t found, std::uint64_t noted) const;

  DurableArrays state_;
  const Store* store_;
  std::vector<std::size_t> first_;                    // [arrays] index of the array's first extent
  std::array<std::vector<std::uint64_t>, 2> hashes_;  // [slots][extents of all arrays]
  std::array<std::vector<std::uint8_t>, 2> known_;    // the same; not bool, as different threads write neighbours
};

}  // namespace spillway
