#include "models/cpu/transpose.h"

#include "models/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "models/cpu/transpose.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>

HWY_BEFORE_NAMESPACE();
namespace spillway::ops {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_SCALAR
template <typename U>
constexpr std::int64_t kTile = 1;
template <typename U>
void transpose_tile(const U* x, std::int64_t, U* y, std::int64_t) {
  *y = *x;
}
#else
template <typename U>
constexpr std::int64_t kTile = 16 / sizeof(U);  // one 128-bit vector

// 8 x 8 elements of 16 bits: three rounds of interleaving, each doubling the length of the runs.
void transpose_tile(const std::uint16_t* x, std::int64_t ldx, std::uint16_t* y, std::int64_t ldy) {
  const hn::FixedTag<std::uint16_t, 8> d16;
  const hn::FixedTag<std::uint32_t, 4> d32;
  const hn::FixedTag<std::uint64_t, 2> d64;
  using V32 = hn::Vec<decltype(d32)>;
  V32 pairs[8];
  for (int i = 0; i < 4; ++i) {
    const auto even = hn::LoadU(d16, x + 2 * i * ldx);
    const auto odd = hn::LoadU(d16, x + (2 * i + 1) * ldx);
    pairs[2 * i] = hn::BitCast(d32, hn::InterleaveLower(d16, even, odd));      // columns 0..3 of two rows
    pairs[2 * i + 1] = hn::BitCast(d32, hn::InterleaveUpper(d16, even, odd));  // columns 4..7
  }
  for (int half = 0; half < 2; ++half) {
    const auto low_0 = hn::BitCast(d64, hn::InterleaveLower(d32, pairs[half], pairs[half + 2]));
    const auto low_1 = hn::BitCast(d64, hn::InterleaveLower(d32, pairs[half + 4], pairs[half + 6]));
    const auto high_0 = hn::BitCast(d64, hn::InterleaveUpper(d32, pairs[half], pairs[half + 2]));
    const auto high_1 = hn::BitCast(d64, hn::InterleaveUpper(d32, pairs[half + 4], pairs[half + 6]));
    std::uint16_t* out = y + 4 * half * ldy;
    hn::StoreU(hn::BitCast(d16, hn::InterleaveLower(d64, low_0, low_1)), d16, out);
    hn::StoreU(hn::BitCast(d16, hn::InterleaveUpper(d64, low_0, low_1)), d16, out + ldy);
    hn::StoreU(hn::BitCast(d16, hn::InterleaveLower(d64, high_0, high_1)), d16, out + 2 * ldy);
    hn::StoreU(hn::BitCast(d16, hn::InterleaveUpper(d64, high_0, high_1)), d16, out + 3 * ldy);
  }
}

void transpose_tile(const std::uint32_t* x, std::int64_t ldx, std::uint32_t* y, std::int64_t ldy) {
  const hn::FixedTag<std::uint32_t, 4> d32;
  const hn::FixedTag<std::uint64_t, 2> d64;
  const auto row_0 = hn::LoadU(d32, x);
  const auto row_1 = hn::LoadU(d32, x + ldx);
  const auto row_2 = hn::LoadU(d32, x + 2 * ldx);
  const auto row_3 = hn::LoadU(d32, x + 3 * ldx);
  const auto low_0 = hn::BitCast(d64, hn::InterleaveLower(d32, row_0, row_1));
  const auto low_1 = hn::BitCast(d64, hn::InterleaveLower(d32, row_2, row_3));
  const auto high_0 = hn::BitCast(d64, hn::InterleaveUpper(d32, row_0, row_1));
  const auto high_1 = hn::BitCast(d64, hn::InterleaveUpper(d32, row_2, row_3));
  hn::StoreU(hn::BitCast(d32, hn::InterleaveLower(d64, low_0, low_1)), d32, y);
  hn::StoreU(hn::BitCast(d32, hn::InterleaveUpper(d64, low_0, low_1)), d32, y + ldy);
  hn::StoreU(hn::BitCast(d32, hn::InterleaveLower(d64, high_0, high_1)), d32, y + 2 * ldy);
  hn::StoreU(hn::BitCast(d32, hn::InterleaveUpper(d64, high_0, high_1)), d32, y + 3 * ldy);
}

#endif

// Walks down a strip of columns that is 64 bytes wide: each line of x is used whole, and each line of y is finished before it
// leaves the cache.
template <typename U>
void transpose(std::int64_t rows, std::int64_t columns, const U* x, std::int64_t ldx, U* y, std::int64_t ldy) {
  constexpr std::int64_t kStrip = 64 / sizeof(U);
  for (std::int64_t first = 0; first < columns; first += kStrip) {
    const std::int64_t end = std::min(first + kStrip, columns);
    std::int64_t row = 0;
    for (; row + kTile<U> <= rows; row += kTile<U>) {
      std::int64_t column = first;
      for (; column + kTile<U> <= end; column += kTile<U>)
        transpose_tile(x + row * ldx + column, ldx, y + column * ldy + row, ldy);
      for (; column < end; ++column) {
        for (std::int64_t i = 0; i < kTile<U>; ++i) y[column * ldy + row + i] = x[(row + i) * ldx + column];
      }
    }
    for (; row < rows; ++row) {
      for (std::int64_t column = first; column < end; ++column) y[column * ldy + row] = x[row * ldx + column];
    }
  }
}

}  // namespace

void transpose_16(std::int64_t rows, std::int64_t columns, const std::uint16_t* x, std::int64_t ldx, std::uint16_t* y,
                  std::int64_t ldy) {
  transpose(rows, columns, x, ldx, y, ldy);
}
void transpose_32(std::int64_t rows, std::int64_t columns, const std::uint32_t* x, std::int64_t ldx, std::uint32_t* y,
                  std::int64_t ldy) {
  transpose(rows, columns, x, ldx, y, ldy);
}

}  // namespace HWY_NAMESPACE
}  // namespace spillway::ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace spillway::ops {

HWY_EXPORT(transpose_16);
HWY_EXPORT(transpose_32);

void transpose_block(std::int64_t rows, std::int64_t columns, const std::uint16_t* x, std::int64_t ldx, std::uint16_t* y,
                     std::int64_t ldy) {
  HWY_DYNAMIC_DISPATCH(transpose_16)(rows, columns, x, ldx, y, ldy);
}
void transpose_block(std::int64_t rows, std::int64_t columns, const std::uint32_t* x, std::int64_t ldx, std::uint32_t* y,
                     std::int64_t ldy) {
  HWY_DYNAMIC_DISPATCH(transpose_32)(rows, columns, x, ldx, y, ldy);
}

}  // namespace spillway::ops
#endif
