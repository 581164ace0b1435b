#include "offload/update_hashes.h"

#include <algorithm>

#include "nvme/content_hash.h"
#include "offload/host_adamw.h"

namespace spillway {
namespace {

std::size_t pieces_of(Bytes bytes, Bytes piece) { return static_cast<std::size_t>((bytes + piece - 1) / piece); }

// Bytes of a piece. An extent is whole pieces, or one shorter piece, or all of its array.
Bytes piece_of(Bytes extent) { return std::min(extent, kHashedPieceBytes); }

}  // namespace

UpdateHashes::UpdateHashes(StateExtents& extents, const Plan& plan, std::int64_t interval)
    : extents_(extents), plan_(plan), interval_(interval) {
  // No piece crosses from one thread's elements to another's.
  static_assert(kAdamWChunk * 2 % kHashedPieceBytes == 0 && kHashedPieceBytes % kExtentAlignment == 0);
  std::size_t most = 0;
  for (const Op& op : plan.step.ops) {
    if (op.kind != OpKind::update) continue;
    std::size_t pieces = 0;
    for (const RestingArray& of : plan.blocks[static_cast<std::size_t>(op.block)].state)
      pieces += 2 * pieces_of((op.element_end - op.element_begin) * of.each(), piece_of(extents.extent_bytes(of.buffer)));
    most = std::max(most, pieces);
  }
  pieces_.resize(most);
}

void UpdateHashes::begin(const BoundOp& op, int slot_before, int slot_after, std::int64_t step) {
  count_ = 0;
  std::span<std::uint64_t> left(pieces_);
  const auto room = [&](std::size_t pieces) {
    const auto taken = left.first(pieces);
    left = left.subspan(pieces);
    return taken;
  };
  for (const RestingArray& of : plan_.blocks[static_cast<std::size_t>(op.op->block)].state) {
    const auto kind = static_cast<std::size_t>(of.kind);
    const bool rests_in_memory = in_memory(plan_.resident[static_cast<std::size_t>(of.buffer)].tier);
    if (of.kind == StateKind::weight && updates_part_of_weight(plan_.choices.sharding)) {
      forget_range(of.buffer, rests_in_memory ? 0 : slot_after, 0, plan_.resident[static_cast<std::size_t>(of.buffer)].bytes);
      continue;  // the other ranks' parts come, too
    }
    Array& array = arrays_[static_cast<std::size_t>(count_++)] = {.buffer = of.buffer, .memory = op.operands().state[kind]};
    array.slot_before = rests_in_memory ? 0 : slot_before;
    array.slot_after = rests_in_memory ? 0 : slot_after;
    array.each = of.each();
    array.begin = op.op->element_begin * array.each;
    array.bytes = (op.op->element_end - op.op->element_begin) * array.each;
    array.extent = extents_.extent_bytes(of.buffer);
    array.piece = piece_of(array.extent);
    const std::size_t pieces = pieces_of(array.bytes, array.piece);
    if (op.operands().checks[kind]) array.old = room(pieces);
    if (!rests_in_memory || step % interval_ == 0) array.now = room(pieces);
  }
}

void UpdateHashes::forget(const BoundOp& op, int slot_after) {
  for (const RestingArray& of : plan_.blocks[static_cast<std::size_t>(op.op->block)].state) {
    const bool rests_in_memory = in_memory(plan_.resident[static_cast<std::size_t>(of.buffer)].tier);
    const bool is_whole = of.kind == StateKind::weight && updates_part_of_weight(plan_.choices.sharding);
    const Bytes begin = is_whole ? 0 : op.op->element_begin * of.each();
    const Bytes end = is_whole ? plan_.resident[static_cast<std::size_t>(of.buffer)].bytes : op.op->element_end * of.each();
    forget_range(of.buffer, rests_in_memory ? 0 : slot_after, begin, end);
  }
}

void UpdateHashes::forget_range(int buffer, int slot, Bytes begin, Bytes end) {
  for (Bytes at = begin, extent = extents_.extent_bytes(buffer); at < end; at += extent) extents_.forget(buffer, slot, at);
}

void UpdateHashes::take(std::int64_t begin, std::int64_t end, std::span<std::uint64_t> Array::* pieces) const {
  for (const Array& array : std::span(arrays_).first(static_cast<std::size_t>(count_))) {
    const std::span<std::uint64_t> hashes = array.*pieces;
    for (Bytes at = begin * array.each; !hashes.empty() && at < end * array.each; at += array.piece) {
      const Bytes bytes = std::min(array.piece, end * array.each - at);
      hashes[static_cast<std::size_t>(at / array.piece)] = content_hash({array.memory + at, static_cast<std::size_t>(bytes)});
    }
  }
}

void UpdateHashes::finish() {
  for (const Array& array : std::span(arrays_).first(static_cast<std::size_t>(count_))) {
    for (Bytes at = 0; at < array.bytes; at += array.extent) {
      const auto first = static_cast<std::size_t>(at / array.piece);
      const std::size_t pieces = pieces_of(std::min(array.extent, array.bytes - at), array.piece);
      if (!array.old.empty())
        extents_.check_hash(array.buffer, array.slot_before, array.begin + at, extent_hash_of(array.old.subspan(first, pieces)));
      if (!array.now.empty()) {
        extents_.note_hash(array.buffer, array.slot_after, array.begin + at, extent_hash_of(array.now.subspan(first, pieces)));
      } else {
        extents_.forget(array.buffer, array.slot_after, array.begin + at);
      }
    }
  }
}

}  // namespace spillway
