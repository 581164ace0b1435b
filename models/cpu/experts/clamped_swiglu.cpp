// The activation clamped_swiglu, whose gates and ups alternate in a row. A stretch of a row at a time is taken apart into gates
// and ups, so that the arithmetic has whole vectors.
#include "models/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "models/cpu/experts/clamped_swiglu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>

#include "models/activation.h"
#include "models/cpu/experts/clamped_swiglu.h"
#include "models/cpu/row_loop-inl.h"
#include "models/cpu/simd-inl.h"
#include "models/cpu/simd_dispatch.h"

#ifndef SPILLWAY_MODELS_CPU_CLAMPED_SWIGLU_TABLE
#define SPILLWAY_MODELS_CPU_CLAMPED_SWIGLU_TABLE
namespace spillway::ops {
// One instruction set's kernels.
template <typename E>
struct ClampedSwigluKernels {
  decltype(&ops::clamped_swiglu_forward<E>) forward;
  decltype(&ops::clamped_swiglu_backward<E>) backward;
};
}  // namespace spillway::ops
#endif

HWY_BEFORE_NAMESPACE();
namespace spillway::ops {
namespace HWY_NAMESPACE {
namespace {

constexpr std::int64_t kTaskRows = 8, kStretch = 256;

struct Stretch {
  HWY_ALIGN float gate[kStretch], up[kStretch];
};

template <typename E>
HWY_INLINE void take_apart(const E* row, std::int64_t count, Stretch& to) {
  for (std::int64_t i = 0; i < count; ++i) to.gate[i] = to_float(row[2 * i]), to.up[i] = to_float(row[2 * i + 1]);
}
template <typename E>
HWY_INLINE void put_together(const Stretch& from, std::int64_t count, E* row) {
  for (std::int64_t i = 0; i < count; ++i) row[2 * i] = from_float<E>(from.gate[i]), row[2 * i + 1] = from_float<E>(from.up[i]);
}

// Both factors with their slopes, which are 0 where they are clamped. A NaN stays one.
struct Factors {
  Float gate, gate_slope, up, up_slope;
};
HWY_INLINE Factors factors_of(Float gate, Float up) {
  const Float limit = splat(kSwigluLimit), one = splat(1.0f), alpha = splat(kSwigluAlpha);
  const auto gate_is_high = hn::Gt(gate, limit), up_is_high = hn::Gt(up, limit), up_is_low = hn::Lt(up, hn::Neg(limit));
  const Float g = hn::IfThenElse(gate_is_high, limit, gate);
  const Float u = hn::IfThenElse(up_is_high, limit, hn::IfThenElse(up_is_low, hn::Neg(limit), up));
  const Float s = sigmoid(hn::Mul(alpha, g)), value = hn::Mul(g, s);
  const Float slope = hn::MulAdd(hn::Mul(alpha, value), hn::Sub(one, s), s);
  return {value, hn::IfThenZeroElse(gate_is_high, slope), hn::Add(u, one),
          hn::IfThenZeroElse(hn::Or(up_is_high, up_is_low), one)};
}

template <typename Body>
HWY_INLINE void for_stretches(const ThreadPool& pool, std::int64_t n, std::int64_t I, const Body& body) {
  for_rows(pool, n, kTaskRows, [&](std::int64_t row) HWY_ATTR {
    for (std::int64_t i = 0; i < I; i += kStretch) body(row, i, std::min(kStretch, I - i));
  });
}

template <typename E>
void forward(const ThreadPool& pool, std::int64_t n, std::int64_t I, const E* gu, E* h) {
  for_stretches(pool, n, I, [&](std::int64_t row, std::int64_t begin, std::int64_t count) HWY_ATTR {
    Stretch x;
    take_apart(gu + row * 2 * I + 2 * begin, count, x);
    for_vectors(count, [&](std::int64_t i, auto part) HWY_ATTR {
      const Factors f = factors_of(load(x.gate + i, part), load(x.up + i, part));
      store(hn::Mul(f.gate, f.up), h + row * I + begin + i, part);
    });
  });
}

template <typename E>
void backward(const ThreadPool& pool, std::int64_t n, std::int64_t I, const E* dh, const E* gu, E* dgu, E* h) {
  for_stretches(pool, n, I, [&](std::int64_t row, std::int64_t begin, std::int64_t count) HWY_ATTR {
    Stretch x;
    take_apart(gu + row * 2 * I + 2 * begin, count, x);
    for_vectors(count, [&](std::int64_t i, auto part) HWY_ATTR {
      const Factors f = factors_of(load(x.gate + i, part), load(x.up + i, part));
      const Float d = load(dh + row * I + begin + i, part);
      if (h != nullptr) store(hn::Mul(f.gate, f.up), h + row * I + begin + i, part);
      store(hn::Mul(hn::Mul(d, f.up), f.gate_slope), x.gate + i, part);
      store(hn::Mul(hn::Mul(d, f.gate), f.up_slope), x.up + i, part);
    });
    put_together(x, count, dgu + row * 2 * I + 2 * begin);
  });
}

template <typename E>
ClampedSwigluKernels<E> kernels() {
  return {forward<E>, backward<E>};
}

}  // namespace
SPILLWAY_SIMD_TABLES(ClampedSwigluKernels, clamped_swiglu);
}  // namespace HWY_NAMESPACE
}  // namespace spillway::ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace spillway::ops {

SPILLWAY_SIMD_DISPATCH(ClampedSwigluKernels, clamped_swiglu);

template <typename E>
void clamped_swiglu_forward(const ThreadPool& pool, std::int64_t n, std::int64_t I, const E* gu, E* h) {
  best<E>().forward(pool, n, I, gu, h);
}
template <typename E>
void clamped_swiglu_backward(const ThreadPool& pool, std::int64_t n, std::int64_t I, const E* dh, const E* gu, E* dgu, E* h) {
  best<E>().backward(pool, n, I, dh, gu, dgu, h);
}

#define SPILLWAY_INSTANTIATE(E)                                                                      \
  template void clamped_swiglu_forward(const ThreadPool&, std::int64_t, std::int64_t, const E*, E*); \
  template void clamped_swiglu_backward(const ThreadPool&, std::int64_t, std::int64_t, const E*, const E*, E*, E*);
SPILLWAY_INSTANTIATE(float)
SPILLWAY_INSTANTIATE(BFloat16)
#undef SPILLWAY_INSTANTIATE

}  // namespace spillway::ops
#endif
