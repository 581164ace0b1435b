// Vector helpers for the element-wise kernels: loads and stores of both compute types as fp32 lanes, exp, tanh, sums over rows.
// Included once a target by files that use hwy/foreach_target.h.
// Not here: anything with a memory pass of its own.
#if defined(SPILLWAY_MODELS_CPU_SIMD_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef SPILLWAY_MODELS_CPU_SIMD_INL_H
#undef SPILLWAY_MODELS_CPU_SIMD_INL_H
#else
#define SPILLWAY_MODELS_CPU_SIMD_INL_H
#endif

#include <hwy/highway.h>

#include <cstdint>
#include <cstring>

#include "memory/base/bfloat16.h"

HWY_BEFORE_NAMESPACE();
namespace spillway::ops {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;
using Float = hn::Vec<FloatTag>;
constexpr std::size_t kMaxLanes = HWY_MAX_BYTES / sizeof(float);

// How much of a vector lies inside the row.
struct Whole {};
struct Part {
  std::int64_t count;
};

HWY_INLINE std::int64_t lanes() { return static_cast<std::int64_t>(hn::Lanes(FloatTag())); }
HWY_INLINE Float zero() { return hn::Zero(FloatTag()); }
HWY_INLINE Float splat(float value) { return hn::Set(FloatTag(), value); }

HWY_INLINE Float load(const float* p, Whole) { return hn::LoadU(FloatTag(), p); }
HWY_INLINE Float load(const BFloat16* p, Whole) {
  const hn::Rebind<std::uint16_t, FloatTag> d16;
  const hn::RebindToUnsigned<FloatTag> d32;
  const auto bits = hn::PromoteTo(d32, hn::LoadU(d16, reinterpret_cast<const std::uint16_t*>(p)));
  return hn::BitCast(FloatTag(), hn::ShiftLeft<16>(bits));
}
template <typename E>
HWY_INLINE Float load(const E* p, Part part) {
  E row[kMaxLanes] = {};
  std::memcpy(row, p, static_cast<std::size_t>(part.count) * sizeof(E));
  return load(row, Whole{});
}

HWY_INLINE void store(Float value, float* p, Whole) { hn::StoreU(value, FloatTag(), p); }
HWY_INLINE void store(Float value, BFloat16* p, Whole) {
  const hn::Rebind<std::uint16_t, FloatTag> d16;
  const hn::RebindToUnsigned<FloatTag> d32;
  const auto raw = hn::BitCast(d32, value);
  const auto tie = hn::And(hn::ShiftRight<16>(raw), hn::Set(d32, 1));
  const auto rounded = hn::ShiftRight<16>(hn::Add(raw, hn::Add(tie, hn::Set(d32, 0x7fff))));
  // A NaN keeps its high half and turns quiet: rounding could carry its mantissa into infinity.
  const auto nan = hn::Or(hn::ShiftRight<16>(raw), hn::Set(d32, 0x40));
  const auto is_nan = hn::RebindMask(d32, hn::IsNaN(value));
  const auto high = hn::IfThenElse(is_nan, nan, rounded);
  hn::StoreU(hn::TruncateTo(d16, high), d16, reinterpret_cast<std::uint16_t*>(p));
}
template <typename E>
HWY_INLINE void store(Float value, E* p, Part part) {
  E row[kMaxLanes];
  store(value, row, Whole{});
  std::memcpy(p, row, static_cast<std::size_t>(part.count) * sizeof(E));
}

// Zero in the lanes beyond the row.
HWY_INLINE Float masked(Float value, Whole) { return value; }
HWY_INLINE Float masked(Float value, Part part) {
  return hn::IfThenElseZero(hn::FirstN(FloatTag(), static_cast<std::size_t>(part.count)), value);
}

// body(offset, Whole or Part) over [0, count).
template <typename Body>
HWY_INLINE void for_vectors(std::int64_t count, const Body& body) {
  const std::int64_t step = lanes();
  std::int64_t i = 0;
  for (; i + step <= count; i += step) body(i, Whole{});
  if (i < count) body(i, Part{count - i});
}

// The sum of term(offset, Whole or Part) over [0, count); terms of a Part are 0 in the lanes beyond it. Four running sums hide
// the latency of the addition; the offset alone decides which of them takes a term.
template <typename Term>
HWY_INLINE float sum_vectors(std::int64_t count, const Term& term) {
  const std::int64_t step = lanes();
  Float sum_0 = zero(), sum_1 = zero(), sum_2 = zero(), sum_3 = zero();
  std::int64_t i = 0;
  for (; i + 4 * step <= count; i += 4 * step) {
    sum_0 = hn::Add(sum_0, term(i, Whole{}));
    sum_1 = hn::Add(sum_1, term(i + step, Whole{}));
    sum_2 = hn::Add(sum_2, term(i + 2 * step, Whole{}));
    sum_3 = hn::Add(sum_3, term(i + 3 * step, Whole{}));
  }
  for (; i + step <= count; i += step) sum_0 = hn::Add(sum_0, term(i, Whole{}));
  if (i < count) sum_1 = hn::Add(sum_1, term(i, Part{count - i}));
  return hn::GetLane(hn::SumOfLanes(FloatTag(), hn::Add(hn::Add(sum_0, sum_1), hn::Add(sum_2, sum_3))));
}

constexpr float kLowestExponent = -87.3f;

// e^x = (1 + minus_one) * power, where minus_one keeps its relative accuracy and power is one of 2. NaN stays in minus_one.
struct Exponential {
  Float minus_one;
  Float power;
};
HWY_INLINE Exponential exponential(Float x) {
  const FloatTag d;
  const hn::RebindToUnsigned<FloatTag> du;
  const Float low = splat(kLowestExponent);
  // Used only for the power of two; r comes from x, because instruction sets differ in the minimum and maximum of a NaN.
  const Float bounded = hn::Max(low, hn::Min(splat(88.0f), x));
  // x = n ln 2 + r. Adding 1.5 * 2^23 rounds to a whole n and leaves it in the low bits.
  const Float magic = splat(12582912.0f);
  const Float shifted = hn::MulAdd(bounded, splat(1.442695041f), magic);
  const Float n = hn::Sub(shifted, magic);
  // ln 2 in two parts, so that n * ln 2 is exact to the last bit of r.
  Float r = hn::NegMulAdd(n, splat(0.693359375f), x);
  r = hn::NegMulAdd(n, splat(-2.12194440e-4f), r);
  Float p = splat(0.00138145930f);
  p = hn::MulAdd(p, r, splat(0.00836871745f));
  p = hn::MulAdd(p, r, splat(0.0416683882f));
  p = hn::MulAdd(p, r, splat(0.166665206f));
  p = hn::MulAdd(p, r, splat(0.499999934f));
  const auto power = hn::ShiftLeft<23>(hn::Add(hn::BitCast(du, shifted), hn::Set(du, 127)));
  return {hn::MulAdd(p, hn::Mul(r, r), r), hn::BitCast(d, power)};
}

// exp(x), relative error about 1e-7 up to x = 88; beyond it grows to infinity inexactly; below -87.3 it is 0; NaN stays NaN.
HWY_INLINE Float exp(Float x) {
  const auto vanishes = hn::Lt(x, splat(kLowestExponent));
  const Exponential e = exponential(x);
  return hn::IfThenZeroElse(vanishes, hn::Mul(hn::Add(e.minus_one, splat(1.0f)), e.power));
}

HWY_INLINE Float sigmoid(Float x) { return hn::Div(splat(1.0f), hn::Add(splat(1.0f), exp(hn::Neg(x)))); }

// tanh(x), relative error about 2e-7 everywhere, never beyond 1; NaN stays NaN. With m = exp(-2|x|) - 1 it is -m / (2 + m).
HWY_INLINE Float tanh(Float x) {
  const Float size = hn::Abs(x);
  const Exponential e = exponential(hn::Mul(size, splat(-2.0f)));
  const Float m = hn::MulAdd(e.minus_one, e.power, hn::Sub(e.power, splat(1.0f)));
  const Float value = hn::Div(hn::Neg(m), hn::Add(m, splat(2.0f)));
  // tanh rounds to 1 from 9.02 on; far beyond that, minus_one is not a number.
  return hn::CopySign(hn::IfThenElse(hn::Gt(size, splat(10.0f)), splat(1.0f), value), x);
}

// cap * tanh(x / cap): x where it is small, and never beyond the cap.
HWY_INLINE Float capped(Float x, Float cap, Float inverse_cap) { return hn::Mul(cap, tanh(hn::Mul(x, inverse_cap))); }

}  // namespace HWY_NAMESPACE
}  // namespace spillway::ops
HWY_AFTER_NAMESPACE();

#endif
