// The tree along which every reduction over rows runs: blocks of a fixed number of rows, added pairwise. The shape is a function
// of the count alone, so the bits do not depend on the threads.
// Not here: sums inside a row (simd-inl.h).
#pragma once

#include <cstdint>

#include "memory/base/types.h"

namespace spillway::ops {

// Rows of a block: enough that the partial sums are small beside the operand, few enough that the blocks balance threads.
inline constexpr std::int64_t kBlockRows = 64;
constexpr std::int64_t row_blocks(std::int64_t n) { return (n + kBlockRows - 1) / kBlockRows; }
constexpr Bytes partial_sums_bytes(std::int64_t n, std::int64_t columns) { return row_blocks(n) * columns * 4; }

// Adds values[stride * (i + span)] to values[stride * i] in pairs, doubling the span, through add(i, other).
template <typename Add>
void along_tree(std::int64_t count, const Add& add) {
  for (std::int64_t span = 1; span < count; span *= 2) {
    for (std::int64_t i = 0; i + span < count; i += 2 * span) add(i, i + span);
  }
}

}  // namespace spillway::ops
