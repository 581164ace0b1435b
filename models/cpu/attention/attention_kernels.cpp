// Attention's inner loops for every instruction set: fp32, and bf16 computed in fp32.
#include "models/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "models/cpu/attention/attention_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "models/cpu/attention/attention_kernels.h"
#include "models/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace spillway::ops {
namespace HWY_NAMESPACE {
namespace {

using namespace attention;
using UnitTag = hn::RebindToUnsigned<FloatTag>;
using Units = hn::Vec<UnitTag>;
constexpr int kVectors = HWY_MAX_BYTES >= 64 ? 4 : 2;  // vectors in a row of a register tile
template <typename E>
constexpr std::int64_t kUnitElements = 4 / static_cast<std::int64_t>(sizeof(E));

// 2^x, relative error about 1e-7; below -126 it is 0.
HWY_INLINE Float exp2(Float x) {
  const FloatTag d;
  const hn::RebindToSigned<FloatTag> di;
  const Float low = splat(-126.0f);
  const auto vanishes = hn::Lt(x, low);
  x = hn::IfThenElse(vanishes, low, x);  // a NaN stays, which some targets' Max would drop
  const Float n = hn::Round(x);
  const Float r = hn::Sub(x, n);
  Float p = splat(0.001327646968f);
  p = hn::MulAdd(p, r, splat(0.009675541316f));
  p = hn::MulAdd(p, r, splat(0.05550713281f));
  p = hn::MulAdd(p, r, splat(0.2402211972f));
  p = hn::MulAdd(p, r, splat(0.6931469671f));
  p = hn::MulAdd(p, r, splat(1.000000072f));
  const auto power = hn::ShiftLeft<23>(hn::Add(hn::ConvertTo(di, n), hn::Set(di, 127)));
  return hn::IfThenZeroElse(vanishes, hn::Mul(p, hn::BitCast(d, power)));
}

// Adds the product of two units to a sum.
template <typename E>
HWY_INLINE Float add_unit(Float sum, Unit a, Units b) {
  const FloatTag d;
  const UnitTag du;
  if constexpr (sizeof(E) == 4) {
    return hn::MulAdd(hn::BitCast(d, hn::Set(du, a)), hn::BitCast(d, b), sum);
  } else {
    const Units high = hn::Set(du, 0xffff0000u);
    sum = hn::MulAdd(hn::BitCast(d, hn::Set(du, a << 16)), hn::BitCast(d, hn::ShiftLeft<16>(b)), sum);
    return hn::MulAdd(hn::BitCast(d, hn::Set(du, a & 0xffff0000u)), hn::BitCast(d, hn::And(b, high)), sum);
  }
}

template <typename E, int kRows, int kVecs>
void tile(const Product& p, std::int64_t column) {
  const FloatTag d;
  const std::int64_t L = lanes();
  Float sum[kRows][kVecs];
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) {
      if (p.start == Start::write) {
        sum[r][v] = zero();
        continue;
      }
      sum[r][v] = hn::LoadU(d, p.c + r * p.c_stride + column + v * L);
      if (p.start == Start::scale) sum[r][v] = hn::Mul(sum[r][v], splat(p.factors[r]));
    }
  }
  for (std::int64_t u = 0; u < p.units; ++u) {
    Units b[kVecs];
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) b[v] = hn::LoadU(UnitTag(), p.b + u * p.b_stride + column + v * L);
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
      const Unit a = p.a[r * p.a_row + u * p.a_unit];
#pragma GCC unroll 4
      for (int v = 0; v < kVecs; ++v) sum[r][v] = add_unit<E>(sum[r][v], a, b[v]);
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) hn::StoreU(sum[r][v], d, p.c + r * p.c_stride + column + v * L);
  }
}

template <typename E, int kRows>
void rows_product(const Product& p) {
  const std::int64_t L = lanes();
  std::int64_t column = 0;
  for (; column + kVectors * L <= p.columns; column += kVectors * L) tile<E, kRows, kVectors>(p, column);
  switch ((p.columns - column) / L) {
    case 3: return tile<E, kRows, 3>(p, column);
    case 2: return tile<E, kRows, 2>(p, column);
    case 1: return tile<E, kRows, 1>(p, column);
    default: return;
  }
}

template <typename E>
void product(const Product& p) {
  switch (p.rows) {
    case 1: return rows_product<E, 1>(p);
    case 2: return rows_product<E, 2>(p);
    case 3: return rows_product<E, 3>(p);
    case 4: return rows_product<E, 4>(p);
    case 5: return rows_product<E, 5>(p);
    default: return rows_product<E, 6>(p);
  }
}

// The columns from `column` on that the row sees.
HWY_INLINE hn::Mask<FloatTag> seen_columns(const Sight& sight, std::int64_t row, std::int64_t column) {
  const FloatTag d;
  const Float index = hn::Iota(d, static_cast<float>(column));
  return hn::And(hn::Ge(index, splat(static_cast<float>(sight.begin_of(row)))),
                 hn::Lt(index, splat(static_cast<float>(sight.end + row))));
}

void squash_scores(const Squash& s) {
  const Float factor = splat(s.factor);
  for (std::int64_t r = 0; r < s.rows; ++r) {
    float* row = s.scores + r * s.stride;
    for (std::int64_t c = 0; c < s.columns; c += lanes()) {
      store(tanh(hn::Mul(load(row + c, Whole{}), factor)), row + c, Whole{});
    }
  }
}

template <typename E>
void softmax(const SoftmaxStep<E>& s) {
  const FloatTag d;
  const std::int64_t L = lanes();
  const bool all = s.sight.all(s.rows, s.columns);
  for (std::int64_t r = 0; r < s.rows; ++r) {
    float* row = s.scores + r * s.stride;
    Float largest = splat(s.maximum[r]);
    for (std::int64_t c = 0; c < s.columns; c += L) {
      Float x = hn::Mul(hn::LoadU(d, row + c), splat(s.scale));
      if (!all) x = hn::IfThenElse(seen_columns(s.sight, r, c), x, splat(-std::numeric_limits<float>::infinity()));
      hn::StoreU(x, d, row + c);
      largest = hn::Max(largest, x);
    }
    largest = hn::MaxOfLanes(d, largest);
    const Float factor = exp2(hn::Sub(splat(s.maximum[r]), largest));
    s.maximum[r] = hn::GetLane(largest);
    s.factors[r] = hn::GetLane(factor);
    float* sums = s.sums + r * kColumns;
    for (std::int64_t i = 0; i < kColumns; i += L) hn::StoreU(hn::Mul(hn::LoadU(d, sums + i), factor), d, sums + i);
    for (std::int64_t c = 0; c < s.columns; c += L) {
      const Float weight = exp2(hn::Sub(hn::LoadU(d, row + c), largest));
      float* sum = sums + c % kColumns;
      hn::StoreU(hn::Add(hn::LoadU(d, sum), weight), d, sum);
      store(weight, s.weights + r * s.stride + c, Whole{});
    }
  }
}

// The bf16 of each lane in the high half; NaNs of arithmetic stay NaNs.
HWY_INLINE Units rounded_high(Float value) {
  const UnitTag du;
  const Units raw = hn::BitCast(du, value);
  const Units tie = hn::And(hn::ShiftRight<16>(raw), hn::Set(du, 1));
  return hn::And(hn::Add(raw, hn::Add(tie, hn::Set(du, 0x7fff))), hn::Set(du, 0xffff0000u));
}

template <typename E, bool kCapped>
void gradient(const GradientStep<E>& s) {
  const FloatTag d;
  const UnitTag du;
  const std::int64_t L = lanes();
  const bool all = s.sight.all(s.rows, s.columns);
  constexpr std::int64_t kRows = kUnitElements<E>;
  for (std::int64_t r = 0; r < s.rows; r += kRows) {
    for (std::int64_t c = 0; c < s.columns; c += L) {
      Float p[2] = {}, ds[2] = {};
      for (std::int64_t i = 0; i < kRows; ++i) {
        const std::int64_t at = (r + i) * s.stride + c;
        const Float score = hn::LoadU(d, s.scores + at);
        p[i] = exp2(hn::MulSub(score, splat(s.scale), splat(s.lse[r + i])));
        if (!all) p[i] = hn::IfThenElseZero(seen_columns(s.sight, r + i, c), p[i]);
        ds[i] = hn::Mul(p[i], hn::Sub(hn::LoadU(d, s.d_weights + at), splat(s.delta[r + i])));
        if constexpr (kCapped) ds[i] = hn::Mul(ds[i], hn::NegMulAdd(score, score, splat(1.0f)));
        if constexpr (sizeof(E) == 2) store(ds[i], s.ds_rows + at, Whole{});
      }
      const std::int64_t at = r / kRows * s.stride + c;
      if constexpr (sizeof(E) == 4) {
        hn::StoreU(hn::BitCast(du, p[0]), du, s.p_units + at);
        hn::StoreU(hn::BitCast(du, ds[0]), du, s.ds_units + at);
      } else {
        hn::StoreU(hn::Or(hn::ShiftRight<16>(rounded_high(p[0])), rounded_high(p[1])), du, s.p_units + at);
        hn::StoreU(hn::Or(hn::ShiftRight<16>(rounded_high(ds[0])), rounded_high(ds[1])), du, s.ds_units + at);
      }
    }
  }
}

template <typename E>
void copy_rows(const RowBlock<E>& in, E* out, std::int64_t ld) {
  for (std::int64_t r = 0; r < in.padded; ++r) {
    const std::int64_t count = r < in.rows ? in.D : 0;
    if (count > 0) std::memcpy(out + r * ld, in.data + r * in.stride, static_cast<std::size_t>(count) * sizeof(E));
    std::memset(static_cast<void*>(out + r * ld + count), 0, static_cast<std::size_t>(ld - count) * sizeof(E));
  }
}

template <typename E>
void transpose(const RowBlock<E>& in, Unit* out, std::int64_t ld) {
  constexpr std::int64_t kSize = kUnitElements<E>;
  const std::int64_t units = (in.D + kSize - 1) / kSize;
  constexpr std::int64_t kGroup = 16;  // columns of a cache line
  for (std::int64_t begin = 0; begin < in.padded; begin += kGroup) {
    const std::int64_t count = std::clamp<std::int64_t>(in.rows - begin, 0, kGroup);
    for (std::int64_t u = 0; u < units; ++u) {
      const auto bytes = static_cast<std::size_t>(std::min(kSize, in.D - u * kSize)) * sizeof(E);
      Unit line[kGroup] = {};
      if (bytes == sizeof(Unit)) {
        for (std::int64_t r = 0; r < count; ++r)
          std::memcpy(&line[r], in.data + (begin + r) * in.stride + u * kSize, sizeof(Unit));
      } else {
        for (std::int64_t r = 0; r < count; ++r) std::memcpy(&line[r], in.data + (begin + r) * in.stride + u * kSize, bytes);
      }
      std::memcpy(out + u * ld + begin, line, sizeof(line));
    }
  }
}

template <typename E>
void join_rows(const RowBlock<E>& in, Unit* out, std::int64_t ld) {
  const UnitTag du;
  constexpr std::int64_t kRows = kUnitElements<E>;
  for (std::int64_t r = 0; r < in.padded; r += kRows) {
    Unit* to = out + r / kRows * ld;
    if (r >= in.rows) {
      std::memset(to, 0, static_cast<std::size_t>(ld) * sizeof(Unit));
      continue;
    }
    std::memset(to + in.D, 0, static_cast<std::size_t>(ld - in.D) * sizeof(Unit));
    const E* row = in.data + r * in.stride;
    if constexpr (sizeof(E) == 4) {
      std::memcpy(to, row, static_cast<std::size_t>(in.D) * sizeof(Unit));
    } else {
      const hn::Rebind<std::uint16_t, FloatTag> d16;
      const E* next = r + 1 < in.rows ? row + in.stride : nullptr;
      std::int64_t c = 0;
      for (; c + lanes() <= in.D; c += lanes()) {
        const Units low = hn::PromoteTo(du, hn::LoadU(d16, reinterpret_cast<const std::uint16_t*>(row + c)));
        const Units high =
            next == nullptr ? hn::Zero(du) : hn::PromoteTo(du, hn::LoadU(d16, reinterpret_cast<const std::uint16_t*>(next + c)));
        hn::StoreU(hn::Or(low, hn::ShiftLeft<16>(high)), du, to + c);
      }
      for (; c < in.D; ++c) to[c] = row[c].bits | static_cast<Unit>(next == nullptr ? 0 : next[c].bits) << 16;
    }
  }
}

template <typename E, typename Lanes>
HWY_INLINE void write_lanes(const RowTerms& terms, float factor, std::int64_t column, Lanes which, E* out) {
  Float sum = load(terms.data + column, which);
  for (std::int64_t i = 1; i < terms.count; ++i) sum = hn::Add(sum, load(terms.data + i * terms.stride + column, which));
  store(hn::Mul(sum, splat(factor)), out + column, which);
}
template <typename E>
void write_sum(const RowTerms& terms, float factor, std::int64_t D, E* out) {
  const std::int64_t L = lanes();
  std::int64_t c = 0;
  for (; c + L <= D; c += L) write_lanes(terms, factor, c, Whole{}, out);
  if (c < D) write_lanes(terms, factor, c, Part{D - c}, out);
}

template <typename E>
float dot(const E* x, const E* y, std::int64_t D) {
  const std::int64_t L = lanes();
  Float sum = zero();
  std::int64_t c = 0;
  for (; c + L <= D; c += L) sum = hn::MulAdd(load(x + c, Whole{}), load(y + c, Whole{}), sum);
  if (c < D) sum = hn::MulAdd(load(x + c, Part{D - c}), load(y + c, Part{D - c}), sum);
  return hn::GetLane(hn::SumOfLanes(FloatTag(), sum));
}

template <typename E>
const Kernels<E>& table() {
  static constexpr Kernels<E> kTable = {.product = product<E>,
                                        .softmax = softmax<E>,
                                        .gradient = gradient<E, false>,
                                        .gradient_capped = gradient<E, true>,
                                        .copy_rows = copy_rows<E>,
                                        .transpose = transpose<E>,
                                        .join_rows = join_rows<E>,
                                        .write_sum = write_sum<E>,
                                        .dot = dot<E>};
  return kTable;
}
const Kernels<float>& attention_fp32() { return table<float>(); }
const Kernels<BFloat16>& attention_bf16() { return table<BFloat16>(); }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace spillway::ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace spillway::ops {
HWY_EXPORT(squash_scores);
HWY_EXPORT(attention_fp32);
HWY_EXPORT(attention_bf16);
namespace attention {
void squash(const Squash& s) { HWY_DYNAMIC_DISPATCH(squash_scores)(s); }
const Kernels<float>& kernels_fp32() { return HWY_DYNAMIC_DISPATCH(attention_fp32)(); }
const Kernels<BFloat16>& kernels_bf16_widened() { return HWY_DYNAMIC_DISPATCH(attention_bf16)(); }
}  // namespace attention
}  // namespace spillway::ops
#endif
