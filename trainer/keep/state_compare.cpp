#include "trainer/keep/state_compare.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <span>

#include "files/posix_file.h"
#include "files/safetensors.h"
#include "memory/base/error.h"
#include "memory/runtime/arena.h"
#include "trainer/keep/state_io.h"

namespace spillway {
namespace {

constexpr std::int64_t kChunk = 1 << 20;  // elements
static_assert(kChunk % kBlockElements == 0);

std::uint32_t bits_at(const std::byte* data, std::int64_t index, Bytes each) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, data + index * each, static_cast<std::size_t>(each));  // little-endian: two bytes become the low ones
  return bits;
}

}  // namespace

ElementName name_of_element(const ParameterBlock& block, std::int64_t element) {
  for (const TensorPiece& piece : block.pieces) {
    const std::int64_t inside = element - piece.begin;
    if (inside < 0 || inside >= piece.elements()) continue;
    const std::int64_t row = piece.file_row(inside / piece.columns), column = piece.column_begin + inside % piece.columns;
    if (piece.file_shape.size() < 2) return {piece.tensor, {row}};
    if (piece.layout == FileLayout::transposed) return {piece.tensor, {column, row}};
    return {piece.tensor, {row, column}};
  }
  return {};
}

std::optional<StateDifference> first_difference(Executor& executor, const Plan& plan, const UnitGraph& graph,
                                                const std::string& file) {
  constexpr std::array<const char*, kStateKinds> words = {"weight", "low half of the master", "first moment", "second moment",
                                                          "master"};
  const SafetensorsReader reader(file);
  const PosixFile data = PosixFile::open_to_read(file);
  const Arena staging(8 * kChunk, "state to compare");
  for (int b = 0; b < static_cast<int>(graph.blocks.size()); ++b) {
    const ParameterBlock& block = graph.blocks[b];
    for (const StateArray& array : block.frozen ? StateList() : state_of(block, plan.choices.form)) {
      const Bytes each = array.each();
      const std::string stored = state_array_name(block, array.kind);
      const StoredTensor* tensor = reader.find(stored);
      SPILLWAY_CHECK(tensor != nullptr && tensor->elements == block.elements, "{} has no {}", file, stored);
      for (std::int64_t begin = 0; begin < block.elements; begin += kChunk) {
        const auto bytes = static_cast<std::size_t>(std::min(kChunk, block.elements - begin) * each);
        const std::span<std::byte> first(staging.data(), bytes), second(staging.data() + 4 * kChunk, bytes);
        data.read(tensor->offset + begin * each, first);
        executor.read_state(b, array.kind, begin, second);
        if (std::memcmp(first.data(), second.data(), bytes) == 0) continue;
        const auto byte = std::mismatch(first.begin(), first.end(), second.begin()).first - first.begin();
        const std::int64_t index = byte / each;
        const ElementName name = name_of_element(block, begin + index);
        const char* word = words[static_cast<std::size_t>(array.kind)];
        return StateDifference{
            name.tensor.empty() ? fmt::format("{} of {}, padding", word, block.name) : fmt::format("{} of {}", word, name.tensor),
            name.at, bits_at(first.data(), index, each), bits_at(second.data(), index, each)};
      }
    }
  }
  return std::nullopt;
}

}  // namespace spillway
