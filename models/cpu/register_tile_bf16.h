// Code for AVX-512's bf16 dot products that attention and the matrix product share: the loop that keeps a tile of sums in
// registers, and the transpose that makes the pairs it takes. A pair is two neighbouring bf16 elements along the reduction, 32
// bits. Only for functions that are compiled for at least the instructions of SPILLWAY_AVX512_BF16; they run only where the CPU
// has these. Not here: the places of tiles and the use of their sums (attention_kernels_bf16.cpp, gemm_bf16.cpp).
#pragma once

// GCC 12's own intrinsics start from a variable that they leave undefined on purpose (its bug 105593).
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>

#include <cstdint>
#include <cstring>

#define SPILLWAY_AVX512_BF16 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")))

namespace spillway::ops {

inline constexpr std::int64_t kTileLanes = 16;  // sums in a vector, and pairs in a vector of B

// For each of `pairs`, adds A's pair of row r times vector v of B's line to sum[r][v]. A's rows and pairs lie anywhere at fixed
// strides, in elements of A.
template <int kRows, int kVectors, typename A>
SPILLWAY_AVX512_BF16 inline __attribute__((always_inline)) void add_products(__m512 (&sum)[kRows][kVectors], std::int64_t pairs,
                                                                             const A* a, std::int64_t a_row, std::int64_t a_pair,
                                                                             const std::uint32_t* b, std::int64_t b_line) {
  for (; pairs > 0; --pairs, a += a_pair, b += b_line) {
    __m512bh line[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) line[v] = reinterpret_cast<__m512bh>(_mm512_loadu_si512(b + v * kTileLanes));
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
      int pair;
      std::memcpy(&pair, a + r * a_row, sizeof(pair));
      const auto both = reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair));
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sum[r][v] = _mm512_dpbf16_ps(sum[r][v], both, line[v]);
    }
  }
}

// Turns 16 rows of 16 pairs into 16 columns: single pairs change places, then twos, then 128-bit quarters.
SPILLWAY_AVX512_BF16 inline __attribute__((always_inline)) void transpose_pairs(__m512i (&x)[16]) {
  __m512i y[16];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    y[i] = _mm512_unpacklo_epi32(x[i], x[i + 1]);
    y[i + 1] = _mm512_unpackhi_epi32(x[i], x[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    x[i] = _mm512_unpacklo_epi64(y[i], y[i + 2]);
    x[i + 1] = _mm512_unpackhi_epi64(y[i], y[i + 2]);
    x[i + 2] = _mm512_unpacklo_epi64(y[i + 1], y[i + 3]);
    x[i + 3] = _mm512_unpackhi_epi64(y[i + 1], y[i + 3]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    y[i] = _mm512_shuffle_i32x4(x[i], x[i + 4], 0x88);
    y[i + 4] = _mm512_shuffle_i32x4(x[i], x[i + 4], 0xdd);
    y[i + 8] = _mm512_shuffle_i32x4(x[i + 8], x[i + 12], 0x88);
    y[i + 12] = _mm512_shuffle_i32x4(x[i + 8], x[i + 12], 0xdd);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    x[i] = _mm512_shuffle_i32x4(y[i], y[i + 8], 0x88);
    x[i + 8] = _mm512_shuffle_i32x4(y[i], y[i + 8], 0xdd);
    x[i + 4] = _mm512_shuffle_i32x4(y[i + 4], y[i + 12], 0x88);
    x[i + 12] = _mm512_shuffle_i32x4(y[i + 4], y[i + 12], 0xdd);
  }
}

}  // namespace spillway::ops
