// Attention's inner loops with AVX-512's bf16 dot products.
#include <algorithm>
#include <array>
#include <cstring>

#include "models/cpu/attention/attention_kernels.h"

#if defined(__x86_64__)
#include "models/cpu/register_tile_bf16.h"

// Everything down to the matching pop, templates too, is compiled for these and runs only where kernels_bf16_native() finds them.
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,bmi,bmi2,avx512f,avx512bw,avx512vl,avx512dq,avx512bf16"))), \
                             apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,bmi,bmi2,avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")
#endif

namespace spillway::ops::attention {
namespace {

using Row = RowBlock<BFloat16>;
constexpr std::int64_t kLanes = kTileLanes;

#define SPILLWAY_INLINE inline __attribute__((always_inline))

SPILLWAY_INLINE __m512bh as_bf16(__m512i x) { return reinterpret_cast<__m512bh>(x); }
SPILLWAY_INLINE __m512i as_integers(__m512bh x) { return reinterpret_cast<__m512i>(x); }
SPILLWAY_INLINE __m256i as_integers(__m256bh x) { return reinterpret_cast<__m256i>(x); }

template <int kRows, int kVectors, Start kStart>
void tile(const Product& p, std::int64_t column) {
  __m512 sum[kRows][kVectors];
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      const float* c = p.c + r * p.c_stride + column + v * kLanes;
      if constexpr (kStart == Start::write) {
        sum[r][v] = _mm512_setzero_ps();
      } else if constexpr (kStart == Start::add) {
        sum[r][v] = _mm512_loadu_ps(c);
      } else {
        sum[r][v] = _mm512_mul_ps(_mm512_loadu_ps(c), _mm512_set1_ps(p.factors[r]));
      }
    }
  }
  add_products(sum, p.units, p.a, p.a_row, p.a_unit, p.b + column, p.b_stride);
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) _mm512_storeu_ps(p.c + r * p.c_stride + column + v * kLanes, sum[r][v]);
  }
}

template <int kRows, Start kStart>
void rows_product(const Product& p) {
  std::int64_t column = 0;
  for (; column + 4 * kLanes <= p.columns; column += 4 * kLanes) tile<kRows, 4, kStart>(p, column);
  switch ((p.columns - column) / kLanes) {
    case 3: return tile<kRows, 3, kStart>(p, column);
    case 2: return tile<kRows, 2, kStart>(p, column);
    case 1: return tile<kRows, 1, kStart>(p, column);
    default: return;
  }
}

template <int kRows>
void started_product(const Product& p) {
  switch (p.start) {
    case Start::write: return rows_product<kRows, Start::write>(p);
    case Start::add: return rows_product<kRows, Start::add>(p);
    case Start::scale: return rows_product<kRows, Start::scale>(p);
  }
}

void product(const Product& p) {
  switch (p.rows) {
    case 1: return started_product<1>(p);
    case 2: return started_product<2>(p);
    case 3: return started_product<3>(p);
    case 4: return started_product<4>(p);
    case 5: return started_product<5>(p);
    default: return started_product<6>(p);
  }
}

// 2^x = 2^(x - floor x) * 2^floor x, relative error about 1e-7. Far below, and at -infinity, it is 0.
SPILLWAY_INLINE __m512 exp2(__m512 x) {
  const __m512 r = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF);
  __m512 p = _mm512_set1_ps(0.00187757649f);
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.008989340538f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.05582631768f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.2401536172f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.6931530732f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.9999999251f));
  return _mm512_scalef_ps(p, x);
}

// The lanes of columns [column, column + 16) that row r sees.
SPILLWAY_INLINE __mmask16 seen_lanes(const Sight& sight, std::int64_t row, std::int64_t column) {
  const std::int64_t begin = std::clamp<std::int64_t>(sight.begin_of(row) - column, 0, kLanes);
  const std::int64_t end = std::clamp<std::int64_t>(sight.end + row - column, 0, kLanes);
  return static_cast<__mmask16>(((1u << end) - 1) & ~((1u << begin) - 1));
}

// 16 scores, -infinity where unseen.
template <bool kAll>
SPILLWAY_INLINE __m512 load_scores(const SoftmaxStep<BFloat16>& s, std::int64_t r, std::int64_t c) {
  const float* scores = s.scores + r * s.stride + c;
  if constexpr (kAll) {
    return _mm512_loadu_ps(scores);
  } else {
    return _mm512_mask_loadu_ps(_mm512_set1_ps(-__builtin_inff()), seen_lanes(s.sight, r, c), scores);
  }
}

template <bool kAll>
void softmax_rows(const SoftmaxStep<BFloat16>& s) {
  const __m512 scale = _mm512_set1_ps(s.scale);
  // All maxima first: the rows' reductions and their exponentials then overlap.
  __m512 shifts[kStripRows];
  for (std::int64_t r = 0; r < s.rows; ++r) {
    __m512 largest = load_scores<kAll>(s, r, 0);
    for (std::int64_t c = kLanes; c < s.columns; c += kLanes) largest = _mm512_max_ps(largest, load_scores<kAll>(s, r, c));
    shifts[r] = largest;
  }
  for (std::int64_t r = 0; r < s.rows; ++r) {
    const float before = s.maximum[r];
    s.maximum[r] = std::max(before, _mm512_reduce_max_ps(shifts[r]) * s.scale);
    shifts[r] = _mm512_set1_ps(s.maximum[r]);
    const __m512 factor = exp2(_mm512_sub_ps(_mm512_set1_ps(before), shifts[r]));
    s.factors[r] = _mm512_cvtss_f32(factor);
    _mm512_storeu_ps(s.sums + r * kColumns, _mm512_mul_ps(_mm512_loadu_ps(s.sums + r * kColumns), factor));
  }
  for (std::int64_t r = 0; r < s.rows; ++r) {
    const __m512 shift = shifts[r];
    __m512 sum = _mm512_loadu_ps(s.sums + r * kColumns);
    BFloat16* weights = s.weights + r * s.stride;
    std::int64_t c = 0;
    for (; c + 2 * kLanes <= s.columns; c += 2 * kLanes) {
      const __m512 p0 = exp2(_mm512_fmsub_ps(load_scores<kAll>(s, r, c), scale, shift));
      const __m512 p1 = exp2(_mm512_fmsub_ps(load_scores<kAll>(s, r, c + kLanes), scale, shift));
      sum = _mm512_add_ps(sum, _mm512_add_ps(p0, p1));
      _mm512_storeu_si512(weights + c, as_integers(_mm512_cvtne2ps_pbh(p1, p0)));
    }
    if (c < s.columns) {
      const __m512 p = exp2(_mm512_fmsub_ps(load_scores<kAll>(s, r, c), scale, shift));
      sum = _mm512_add_ps(sum, p);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(weights + c), as_integers(_mm512_cvtneps_pbh(p)));
    }
    _mm512_storeu_ps(s.sums + r * kColumns, sum);
  }
}

void softmax(const SoftmaxStep<BFloat16>& s) {
  if (s.sight.all(s.rows, s.columns)) {
    softmax_rows<true>(s);
  } else {
    softmax_rows<false>(s);
  }
}

// Lane i / 2 + (i odd ? other : 0). kHalves puts the two halves of one vector side by side, kLower the lower halves of two
// vectors.
constexpr std::array<std::uint16_t, 32> interleaved(std::size_t other) {
  std::array<std::uint16_t, 32> index{};
  for (std::size_t i = 0; i < 32; ++i) index[i] = static_cast<std::uint16_t>(i / 2 + i % 2 * other);
  return index;
}
alignas(64) constexpr std::array<std::uint16_t, 32> kHalves = interleaved(16);
alignas(64) constexpr std::array<std::uint16_t, 32> kLower = interleaved(32);

// 1 - t^2, the slope of a cap at its tanh t.
SPILLWAY_INLINE __m512 cap_slope(__m512 t) { return _mm512_fnmadd_ps(t, t, _mm512_set1_ps(1.0f)); }

template <bool kAll, bool kCapped>
void gradient_rows(const GradientStep<BFloat16>& s) {
  const __m512 scale = _mm512_set1_ps(s.scale);
  const __m512i halves = _mm512_load_si512(kHalves.data());
  for (std::int64_t r = 0; r < s.rows; r += 2) {
    const float* scores = s.scores + r * s.stride;
    const float* d_weights = s.d_weights + r * s.stride;
    const __m512 lse_0 = _mm512_set1_ps(s.lse[r]), lse_1 = _mm512_set1_ps(s.lse[r + 1]);
    const __m512 delta_0 = _mm512_set1_ps(s.delta[r]), delta_1 = _mm512_set1_ps(s.delta[r + 1]);
    Unit* p_units = s.p_units + r / 2 * s.stride;
    Unit* ds_units = s.ds_units + r / 2 * s.stride;
    BFloat16* ds_rows = s.ds_rows + r * s.stride;
    for (std::int64_t c = 0; c < s.columns; c += kLanes) {
      const __m512 score_0 = _mm512_loadu_ps(scores + c), score_1 = _mm512_loadu_ps(scores + s.stride + c);
      __m512 p_0 = exp2(_mm512_fmsub_ps(score_0, scale, lse_0));
      __m512 p_1 = exp2(_mm512_fmsub_ps(score_1, scale, lse_1));
      if constexpr (!kAll) {
        p_0 = _mm512_maskz_mov_ps(seen_lanes(s.sight, r, c), p_0);
        p_1 = _mm512_maskz_mov_ps(seen_lanes(s.sight, r + 1, c), p_1);
      }
      __m512 ds_0 = _mm512_mul_ps(p_0, _mm512_sub_ps(_mm512_loadu_ps(d_weights + c), delta_0));
      __m512 ds_1 = _mm512_mul_ps(p_1, _mm512_sub_ps(_mm512_loadu_ps(d_weights + s.stride + c), delta_1));
      if constexpr (kCapped) {
        ds_0 = _mm512_mul_ps(ds_0, cap_slope(score_0));
        ds_1 = _mm512_mul_ps(ds_1, cap_slope(score_1));
      }
      const __m512i p = as_integers(_mm512_cvtne2ps_pbh(p_1, p_0)), ds = as_integers(_mm512_cvtne2ps_pbh(ds_1, ds_0));
      _mm512_storeu_si512(p_units + c, _mm512_permutexvar_epi16(halves, p));
      _mm512_storeu_si512(ds_units + c, _mm512_permutexvar_epi16(halves, ds));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(ds_rows + c), _mm512_castsi512_si256(ds));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(ds_rows + s.stride + c), _mm512_extracti64x4_epi64(ds, 1));
    }
  }
}

template <bool kCapped>
void gradient(const GradientStep<BFloat16>& s) {
  if (s.sight.all(s.rows, s.columns)) {
    gradient_rows<true, kCapped>(s);
  } else {
    gradient_rows<false, kCapped>(s);
  }
}

// Up to 32 elements of a row, zero beyond.
SPILLWAY_INLINE __m512i load_row(const BFloat16* row, std::int64_t count) {
  if (count >= 32) return _mm512_loadu_si512(row);
  const auto mask = static_cast<__mmask32>((1u << std::max<std::int64_t>(count, 0)) - 1);
  return _mm512_maskz_loadu_epi16(mask, row);
}

void transpose(const Row& in, Unit* out, std::int64_t ld) {
  const std::int64_t units = (in.D + 1) / 2;
  for (std::int64_t begin = 0; begin < in.padded; begin += kLanes) {
    for (std::int64_t u = 0; u < units; u += kLanes) {
      __m512i x[16];
#pragma GCC unroll 16
      for (int r = 0; r < 16; ++r) {
        x[r] = begin + r < in.rows ? load_row(in.data + (begin + r) * in.stride + 2 * u, in.D - 2 * u) : _mm512_setzero_si512();
      }
      transpose_pairs(x);
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) {
        if (u + i < units) _mm512_storeu_si512(out + (u + i) * ld + begin, x[i]);
      }
    }
  }
}

void join_rows(const Row& in, Unit* out, std::int64_t ld) {
  const __m512i lower = _mm512_load_si512(kLower.data()), upper = _mm512_add_epi16(lower, _mm512_set1_epi16(16));
  for (std::int64_t r = 0; r < in.padded; r += 2) {
    Unit* to = out + r / 2 * ld;
    const BFloat16* row = in.data + r * in.stride;
    for (std::int64_t c = 0; c < ld; c += 2 * kLanes) {
      const __m512i a = r < in.rows ? load_row(row + c, in.D - c) : _mm512_setzero_si512();
      const __m512i b = r + 1 < in.rows ? load_row(row + in.stride + c, in.D - c) : _mm512_setzero_si512();
      _mm512_storeu_si512(to + c, _mm512_permutex2var_epi16(a, lower, b));
      if (c + kLanes < ld) _mm512_storeu_si512(to + c + kLanes, _mm512_permutex2var_epi16(a, upper, b));
    }
  }
}

void write_sum(const RowTerms& terms, float factor, std::int64_t D, BFloat16* out) {
  for (std::int64_t c = 0; c < D; c += kLanes) {
    const auto mask = static_cast<__mmask16>(D - c >= kLanes ? 0xffffu : (1u << (D - c)) - 1);
    __m512 sum = _mm512_maskz_loadu_ps(mask, terms.data + c);
    for (std::int64_t i = 1; i < terms.count; ++i) {
      sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(mask, terms.data + i * terms.stride + c));
    }
    _mm256_mask_storeu_epi16(out + c, mask, as_integers(_mm512_cvtneps_pbh(_mm512_mul_ps(sum, _mm512_set1_ps(factor)))));
  }
}

float dot(const BFloat16* x, const BFloat16* y, std::int64_t D) {
  __m512 sum = _mm512_setzero_ps();
  for (std::int64_t c = 0; c < D; c += 2 * kLanes) {
    sum = _mm512_dpbf16_ps(sum, as_bf16(load_row(x + c, D - c)), as_bf16(load_row(y + c, D - c)));
  }
  return _mm512_reduce_add_ps(sum);
}

void copy_rows(const Row& in, BFloat16* out, std::int64_t ld) {
  constexpr std::int64_t kAhead = 12;  // rows lie far apart, and the hardware does not foresee them
  for (std::int64_t r = 0; r < in.padded; ++r) {
    const BFloat16* row = in.data + r * in.stride;
    for (std::int64_t c = 0; c < ld; c += 2 * kLanes) {
      if (r + kAhead < in.rows) _mm_prefetch(reinterpret_cast<const char*>(row + kAhead * in.stride + c), _MM_HINT_T0);
      const __m512i x = r < in.rows ? load_row(row + c, in.D - c) : _mm512_setzero_si512();
      if (c + kLanes < ld) {
        _mm512_storeu_si512(out + r * ld + c, x);
      } else {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + r * ld + c), _mm512_castsi512_si256(x));
      }
    }
  }
}

}  // namespace
}  // namespace spillway::ops::attention
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif

namespace spillway::ops::attention {

const Kernels<BFloat16>* kernels_bf16_native() {
#if defined(__x86_64__)
  static constexpr Kernels<BFloat16> kTable = {.product = product,
                                               .softmax = softmax,
                                               .gradient = gradient<false>,
                                               .gradient_capped = gradient<true>,
                                               .copy_rows = copy_rows,
                                               .transpose = transpose,
                                               .join_rows = join_rows,
                                               .write_sum = write_sum,
                                               .dot = dot};
  const bool there = __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512bw") &&
                     __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("bmi2");
  return there ? &kTable : nullptr;
#else
  return nullptr;
#endif
}

}  // namespace spillway::ops::attention
