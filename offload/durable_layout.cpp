#include "offload/durable_layout.h"

#include <algorithm>
#include <numeric>

#include "memory/base/error.h"
#include "nvme/content_hash.h"

namespace spillway {
namespace {

// The most elements at a time in which state is written to a fresh store, and read for a checkpoint (trainer/keep/state_io). It
// is a power of two, so that all extents are, except those that are a whole array.
constexpr std::int64_t kLongestExtent = 1 << 20;
static_assert(kLongestExtent * 4 <= kMostExtentBytes);

DurableArrays durable_arrays(const Plan& plan, const UnitGraph& graph, int rank) {
  DurableArrays state;
  state.array_of_buffer.assign(plan.resident.size(), -1);
  std::vector<std::size_t> blocks(graph.blocks.size());
  std::iota(blocks.begin(), blocks.end(), 0);
  std::ranges::stable_partition(blocks, [&](std::size_t block) { return !graph.blocks[block].frozen; });
  for (const std::size_t block : blocks) {
    for (const RestingArray& of : plan.blocks[block].state) {
      const Buffer& buffer = plan.resident[static_cast<std::size_t>(of.buffer)];
      const Shard shard = shard_at_rest(plan.choices.sharding, graph.blocks[block], of.kind, rank);
      DurableArray array{.name = state_array_name(graph.blocks[block], of.kind),
                         .first_element = shard.begin,
                         .elements = shard.elements,
                         .bytes = elements_at_rest(plan.choices.sharding, graph.blocks[block], of.kind) * of.each()};
      SPILLWAY_CHECK(array.bytes % kExtentAlignment == 0, "{} has {} bytes", array.name, array.bytes);
      array.extent_bytes = kLongestExtent * of.each();
      if (!in_memory(buffer.tier)) array.begin = {buffer.offset, buffer.offset + (buffer.slots - 1) * buffer.bytes};
      state.array_of_buffer[static_cast<std::size_t>(of.buffer)] = static_cast<int>(state.arrays.size());
      state.buffer.push_back(of.buffer);
      state.arrays.push_back(std::move(array));
    }
    if (!graph.blocks[block].frozen) state.committed = state.arrays.size();
  }
  // No extent crosses an end of the range that one operation takes.
  const auto cut = [&](int buffer, Bytes begin, Bytes bytes) {
    const int index =
        buffer < 0 || buffer >= std::ssize(plan.resident) ? -1 : state.array_of_buffer[static_cast<std::size_t>(buffer)];
    if (index < 0) return;
    DurableArray& array = state.arrays[static_cast<std::size_t>(index)];
    array.extent_bytes = std::gcd(array.extent_bytes, begin);
    if (begin + bytes < array.bytes) array.extent_bytes = std::gcd(array.extent_bytes, bytes);
  };
  for (const Program* program : {&plan.step, &plan.evaluate}) {
    for (const Op& op : program->ops) {
      if (op.kind == OpKind::move) {
        for (const Operand& operand : op.operands) cut(operand.buffer, operand.begin, operand.bytes);
      }
      if (op.kind != OpKind::update) continue;
      for (const RestingArray& of : plan.blocks[static_cast<std::size_t>(op.block)].state)
        cut(of.buffer, op.element_begin * of.each(), (op.element_end - op.element_begin) * of.each());
    }
  }
  for (DurableArray& array : state.arrays) array.extent_bytes = std::min(array.extent_bytes, array.bytes);
  return state;
}

}  // namespace

DurableLayout durable_layout(const Plan& plan, const UnitGraph& graph, int rank) {
  DurableLayout layout{.state = durable_arrays(plan, graph, rank)};
  Bytes end = round_up(plan.peak[Tier::nvme], kExtentAlignment);
  CommitRecord record;
  std::int64_t extents = 0;
  for (std::size_t i = 0; i < layout.state.committed; ++i) {
    DurableArray& array = layout.state.arrays[i];
    extents += array.extents();
    if (!in_memory(plan.resident[static_cast<std::size_t>(layout.state.buffer[i])].tier)) continue;
    array.begin = {end, end + array.bytes};
    end += 2 * array.bytes;
    layout.copied_bytes += array.bytes;
  }
  const std::span<const DurableArray> committed = committed_arrays(layout);
  record.arrays.assign(committed.begin(), committed.end());
  layout.records_begin = end;
  layout.place_bytes = round_up(encoded_bytes(record) + extents * static_cast<Bytes>(sizeof(std::uint64_t)), kExtentAlignment);
  layout.store_bytes = end + 2 * layout.place_bytes;
  return layout;
}

std::uint64_t model_hash(const UnitGraph& graph) {
  std::string text;
  for (const ParameterBlock& block : graph.blocks) {
    text += fmt::format("{}:{}\n", block.name, block.elements);
    for (const TensorPiece& piece : block.pieces) {
      text += fmt::format("{} {} {} {} {} {}\n", piece.tensor, piece.row_begin, piece.column_begin, piece.rows, piece.columns,
                          piece.begin);
    }
  }
  return content_hash(std::as_bytes(std::span(text)));
}

bool lies_as(const CommitRecord& record, const DurableLayout& layout, const StoreIdentity& identity) {
  const auto same = [](const DurableArray& a, const DurableArray& b) {
    return a.name == b.name && a.first_element == b.first_element && a.elements == b.elements && a.bytes == b.bytes &&
           a.begin == b.begin && a.extent_bytes == b.extent_bytes;
  };
  return identity.bytes == layout.store_bytes && identity.records_begin == layout.records_begin &&
         identity.place_bytes == layout.place_bytes && std::ranges::equal(record.arrays, committed_arrays(layout), same);
}

}  // namespace spillway
