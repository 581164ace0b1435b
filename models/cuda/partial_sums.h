// Sums over rows go in two steps: blocks sum a fixed number of rows each, then these sums are added up in a fixed order. That
// number does not depend on the chip, so the bits do not either.
//
// Legend: n rows, H hidden, D head dimension.
#pragma once

#include <cstdint>

namespace spillway::cuda {

inline constexpr int kNormRows = 16, kRopeRows = 16, kSummedRows = 256;  // rows per block

constexpr std::int64_t blocks_for(std::int64_t items, std::int64_t each) { return (items + each - 1) / each; }

// Elements of the sums of all blocks.
constexpr std::int64_t norm_partials(std::int64_t n, std::int64_t H) { return blocks_for(n, kNormRows) * H; }
constexpr std::int64_t rope_partials(std::int64_t n, std::int64_t D) { return blocks_for(n, kRopeRows) * 2 * D; }
constexpr std::int64_t column_partials(std::int64_t n, std::int64_t columns) { return blocks_for(n, kSummedRows) * columns; }

}  // namespace spillway::cuda
