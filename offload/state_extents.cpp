#include "offload/state_extents.h"

#include <map>

#include "memory/base/error.h"
#include "nvme/content_hash.h"

namespace spillway {

StateExtents::StateExtents(DurableArrays state, const Store* store) : state_(std::move(state)), store_(store) {
  std::map<Bytes, std::uint64_t> zeros;  // hash of zeros by length; there are few lengths
  const auto of_zeros = [&](Bytes bytes) {
    const auto [entry, added] = zeros.try_emplace(bytes, 0);
    if (added) entry->second = extent_hash_of_zeros(bytes);
    return entry->second;
  };
  for (const DurableArray& array : state_.arrays) {
    first_.push_back(hashes_[0].size());
    for (Bytes begin = 0; begin < array.bytes; begin += array.extent_bytes)
      hashes_[0].push_back(of_zeros(std::min(array.extent_bytes, array.bytes - begin)));
  }
  hashes_[1] = hashes_[0];
  known_[0].assign(hashes_[0].size(), 1);
  known_[1] = known_[0];
}

void StateExtents::note(int buffer, int slot, Bytes begin, std::span<const std::byte> content) {
  const int index = state_.array_of_buffer[static_cast<std::size_t>(buffer)];
  if (index < 0) return;
  const DurableArray& array = state_.arrays[static_cast<std::size_t>(index)];
  const Bytes end = begin + std::ssize(content);
  for (Bytes extent = begin / array.extent_bytes * array.extent_bytes; extent < end; extent += array.extent_bytes) {
    const Bytes extent_end = std::min(extent + array.extent_bytes, array.bytes);
    if (extent >= begin && extent_end <= end) {
      note_hash(
          buffer, slot, extent,
          extent_hash(content.subspan(static_cast<std::size_t>(extent - begin), static_cast<std::size_t>(extent_end - extent))));
    } else {
      forget(buffer, slot, extent);
    }
  }
}

void StateExtents::check(int buffer, int slot, Bytes begin, std::span<const std::byte> content) const {
  const int index = state_.array_of_buffer[static_cast<std::size_t>(buffer)];
  if (index < 0) return;
  const DurableArray& array = state_.arrays[static_cast<std::size_t>(index)];
  const Bytes end = begin + std::ssize(content);
  for (Bytes extent = round_up(begin, array.extent_bytes); extent < end; extent += array.extent_bytes) {
    const Bytes extent_end = std::min(extent + array.extent_bytes, array.bytes);
    if (extent_end > end) break;
    if (known_[slot_of(index, slot)][place(index, extent)] == 0) continue;
    check_hash(
        buffer, slot, extent,
        extent_hash(content.subspan(static_cast<std::size_t>(extent - begin), static_cast<std::size_t>(extent_end - extent))));
  }
}

void StateExtents::note_hash(int buffer, int slot, Bytes begin, std::uint64_t hash) {
  const int index = state_.array_of_buffer[static_cast<std::size_t>(buffer)];
  const std::size_t at = place(index, begin), held = slot_of(index, slot);
  hashes_[held][at] = hash;
  known_[held][at] = 1;
}

void StateExtents::check_hash(int buffer, int slot, Bytes begin, std::uint64_t hash) const {
  const int index = state_.array_of_buffer[static_cast<std::size_t>(buffer)];
  const std::size_t at = place(index, begin), held = slot_of(index, slot);
  if (known_[held][at] == 0 || hash == hashes_[held][at]) return;
  const DurableArray& array = state_.arrays[static_cast<std::size_t>(index)];
  refuse(index, slot, begin, std::min(array.extent_bytes, array.bytes - begin), hash, hashes_[held][at]);
}

void StateExtents::forget(int buffer, int slot, Bytes begin) {
  const int index = state_.array_of_buffer[static_cast<std::size_t>(buffer)];
  known_[slot_of(index, slot)][place(index, begin)] = 0;
}

void StateExtents::refuse(int array, int slot, Bytes begin, Bytes bytes, std::uint64_t found, std::uint64_t noted) const {
  const DurableArray& of = state_.arrays[static_cast<std::size_t>(array)];
  const StorePlace place = store_->place_of(of.begin[static_cast<std::size_t>(slot)] + begin);
  throw IoError(
      fmt::format("{}: damaged: bytes {} to {}, at offset {} of {}, have checksum {:016x} and were written with {:016x}", of.name,
                  begin, begin + bytes, place.offset, place.file, found, noted),
      "Nothing is kept that was computed with it. See the kernel's log of that disk; then go on from a checkpoint by --load.");
}

}  // namespace spillway
