#include "models/cpu/gemm_bf16.h"

#include "memory/base/error.h"

#if defined(__x86_64__) && defined(__GNUC__)

#include <algorithm>

#include "models/cpu/register_tile_bf16.h"

namespace spillway::ops {
namespace {

constexpr std::int64_t kLanes = kTileLanes;
constexpr int kStripRows = 6;  // 6 x 4 sums, 4 vectors of B and one of A fill the 32 registers

SPILLWAY_AVX512_BF16 inline __m512 widened(__m256i x) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
}

// Packs [k,n] as stored, pairs of rows side by side. Whole rows come first, because that is how they lie in memory; the next ones
// are prefetched, because the hardware does not follow from page to page.
SPILLWAY_AVX512_BF16 void pack_plain(std::int64_t k, std::int64_t n, const BFloat16* b, std::int64_t ldb, std::uint32_t* packed) {
  constexpr std::int64_t kAhead = 8;
  for (std::int64_t pair = 0; pair < k / 2; ++pair) {
    const BFloat16* even = b + 2 * pair * ldb;
    const bool more = 2 * (pair + kAhead) + 1 < k;
    for (std::int64_t column = 0; column < n; column += kPanelColumns) {
      std::uint32_t* out = packed + column / kPanelColumns * (k / 2 * kPanelColumns) + pair * kPanelColumns;
      for (std::int64_t at = column; at < column + kPanelColumns; at += kLanes) {
        const std::int64_t left = std::clamp<std::int64_t>(n - at, 0, kLanes);
        const auto mask = static_cast<__mmask16>((1u << left) - 1);
        const __m512i low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, even + at));
        const __m512i high = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, even + ldb + at));
        _mm512_storeu_si512(out + at - column, _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
      }
      if (more) {
        for (std::int64_t at = column; at < std::min(n, column + kPanelColumns); at += 32) {
          _mm_prefetch(reinterpret_cast<const char*>(even + 2 * kAhead * ldb + at), _MM_HINT_T0);
          _mm_prefetch(reinterpret_cast<const char*>(even + (2 * kAhead + 1) * ldb + at), _MM_HINT_T0);
        }
      }
    }
  }
}

// Packs 16 columns of B [n,k], 16 pairs of each, into the panel's lines.
SPILLWAY_AVX512_BF16 void pack_columns(std::int64_t columns, std::int64_t pairs, const BFloat16* b, std::int64_t ldb,
                                       std::uint32_t* panel) {
  __m512i x[16];
  const auto mask = static_cast<__mmask16>((1u << pairs) - 1);
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) x[i] = i < columns ? _mm512_maskz_loadu_epi32(mask, b + i * ldb) : _mm512_setzero_si512();
  transpose_pairs(x);
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) {
    if (i < pairs) _mm512_storeu_si512(panel + i * kPanelColumns, x[i]);
  }
}

SPILLWAY_AVX512_BF16 void pack_transposed(std::int64_t k, std::int64_t columns, const BFloat16* b, std::int64_t ldb,
                                          std::uint32_t* panel) {
  for (std::int64_t column = 0; column < kPanelColumns; column += kLanes) {
    const std::int64_t left = std::clamp<std::int64_t>(columns - column, 0, kLanes);
    for (std::int64_t pair = 0; pair < k / 2; pair += kLanes) {
      pack_columns(left, std::min(kLanes, k / 2 - pair), b + column * ldb + 2 * pair, ldb, panel + pair * kPanelColumns + column);
    }
  }
}

// Rows x (16 * Vectors) sums. `tail` masks the last vector's columns.
template <int Rows, int Vectors>
SPILLWAY_AVX512_BF16 void multiply_tile(std::int64_t k, const BFloat16* a, std::int64_t lda, const std::uint32_t* panel,
                                        __mmask16 tail, std::int64_t row, std::int64_t column, const Bf16Output& output) {
  __m512 sum[Rows][Vectors];
#pragma GCC unroll 6
  for (int i = 0; i < Rows; ++i) {
    // Old sums are needed only at the end; they arrive meanwhile.
    const float* old = output.partial + (row + i) * output.ld_partial + column;
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) {
      sum[i][v] = _mm512_setzero_ps();
      if (output.starts_from_partial) _mm_prefetch(reinterpret_cast<const char*>(old + v * kLanes), _MM_HINT_T0);
    }
  }
  add_products(sum, k / 2, a, lda, 2, panel, kPanelColumns);
  const __m512 scale = _mm512_set1_ps(output.scale);
#pragma GCC unroll 6
  for (int i = 0; i < Rows; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) {
      const __mmask16 mask = v == Vectors - 1 ? tail : static_cast<__mmask16>(0xffff);
      const std::int64_t at = column + v * kLanes;
      __m512 value = _mm512_mul_ps(sum[i][v], scale);
      float* partial = output.partial + (row + i) * output.ld_partial + at;
      if (output.starts_from_partial) value = _mm512_add_ps(value, _mm512_maskz_loadu_ps(mask, partial));
      if (output.ends_in_partial) {
        _mm512_mask_storeu_ps(partial, mask, value);
        continue;
      }
      const std::int64_t c_at = output.c_offset + (row + i) * output.ldc + at;
      if (output.bias != nullptr) value = _mm512_add_ps(value, widened(_mm256_maskz_loadu_epi16(mask, output.bias + at)));
      if (output.residual != nullptr) {
        const BFloat16* other = output.residual + (row + i) * output.ld_residual + at;
        value = _mm512_add_ps(value, widened(_mm256_maskz_loadu_epi16(mask, other)));
      }
      if (output.c_is_float) {
        float* c = static_cast<float*>(output.c) + c_at;
        if (output.adds_to_c) value = _mm512_add_ps(value, _mm512_maskz_loadu_ps(mask, c));
        _mm512_mask_storeu_ps(c, mask, value);
      } else {
        BFloat16* c = static_cast<BFloat16*>(output.c) + c_at;
        if (output.adds_to_c) value = _mm512_add_ps(value, widened(_mm256_maskz_loadu_epi16(mask, c)));
        _mm256_mask_storeu_epi16(c, mask, (__m256i)_mm512_cvtneps_pbh(value));
      }
    }
  }
}

using Tile = void (*)(std::int64_t, const BFloat16*, std::int64_t, const std::uint32_t*, __mmask16, std::int64_t, std::int64_t,
                      const Bf16Output&);
template <int Rows>
constexpr Tile kTiles[4] = {multiply_tile<Rows, 1>, multiply_tile<Rows, 2>, multiply_tile<Rows, 3>, multiply_tile<Rows, 4>};
constexpr const Tile* kTilesOfRows[kStripRows] = {kTiles<1>, kTiles<2>, kTiles<3>, kTiles<4>, kTiles<5>, kTiles<6>};

}  // namespace

bool bf16_kernels_run() {
  return __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512dq");
}

void pack_bf16(std::int64_t k, std::int64_t n, const BFloat16* b, std::int64_t ldb, Transpose transpose, std::uint32_t* packed) {
  if (transpose == Transpose::no) return pack_plain(k, n, b, ldb, packed);
  for (std::int64_t column = 0; column < n; column += kPanelColumns, packed += k / 2 * kPanelColumns) {
    pack_transposed(k, std::min(kPanelColumns, n - column), b + column * ldb, ldb, packed);
  }
}

void multiply_bf16(std::int64_t m, std::int64_t n, std::int64_t k, const BFloat16* a, std::int64_t lda,
                   const std::uint32_t* packed, const Bf16Output& output) {
  // A strip of A stays in the first cache while the panels come from the second.
  for (std::int64_t row = 0; row < m; row += kStripRows) {
    const std::int64_t rows = std::min<std::int64_t>(kStripRows, m - row);
    for (std::int64_t column = 0; column < n; column += kPanelColumns) {
      const std::int64_t columns = std::min(kPanelColumns, n - column);
      const std::int64_t vectors = (columns + kLanes - 1) / kLanes;
      const auto tail = static_cast<__mmask16>((1u << (columns - (vectors - 1) * kLanes)) - 1);
      kTilesOfRows[rows - 1][vectors - 1](k, a + row * lda, lda, packed + column / kPanelColumns * (k / 2 * kPanelColumns), tail,
                                          row, column, output);
    }
  }
}

}  // namespace spillway::ops

#else

namespace spillway::ops {

bool bf16_kernels_run() { return false; }
void pack_bf16(std::int64_t, std::int64_t, const BFloat16*, std::int64_t, Transpose, std::uint32_t*) {
  SPILLWAY_CHECK(false, "no bf16 kernels on this CPU");
}
void multiply_bf16(std::int64_t, std::int64_t, std::int64_t, const BFloat16*, std::int64_t, const std::uint32_t*,
                   const Bf16Output&) {
  SPILLWAY_CHECK(false, "no bf16 kernels on this CPU");
}

}  // namespace spillway::ops

#endif
