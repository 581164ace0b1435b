#include "models/cpu/gemv.h"

#include "models/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "models/cpu/gemv.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "models/cpu/simd-inl.h"
#include "models/cpu/simd_dispatch.h"

#ifndef SPILLWAY_MODELS_CPU_GEMV_TABLE
#define SPILLWAY_MODELS_CPU_GEMV_TABLE
namespace spillway::ops {
// One instruction set's kernel.
template <typename E>
struct GemvKernels {
  decltype(&ops::multiply_row<E>) multiply_row;
};
}  // namespace spillway::ops
#endif

HWY_BEFORE_NAMESPACE();
namespace spillway::ops {
namespace HWY_NAMESPACE {
namespace {

// Rows that share a load of x, each with two running sums that hide the latency of the addition.
constexpr int kRows = 4;

template <int Rows, typename E>
HWY_INLINE void multiply_rows(std::int64_t k, const float* x, const E* b, std::int64_t ldb, float* sums) {
  const std::int64_t step = lanes();
  Float even_0 = zero(), even_1 = zero(), even_2 = zero(), even_3 = zero();
  Float odd_0 = zero(), odd_1 = zero(), odd_2 = zero(), odd_3 = zero();
  const auto add = [&](std::int64_t at, auto part, Float& sum_0, Float& sum_1, Float& sum_2, Float& sum_3) HWY_ATTR {
    const Float factor = load(x + at, part);
    sum_0 = hn::MulAdd(factor, load(b + at, part), sum_0);
    if constexpr (Rows > 1) sum_1 = hn::MulAdd(factor, load(b + ldb + at, part), sum_1);
    if constexpr (Rows > 2) sum_2 = hn::MulAdd(factor, load(b + 2 * ldb + at, part), sum_2);
    if constexpr (Rows > 3) sum_3 = hn::MulAdd(factor, load(b + 3 * ldb + at, part), sum_3);
  };
  std::int64_t at = 0;
  for (; at + 2 * step <= k; at += 2 * step) {
    add(at, Whole{}, even_0, even_1, even_2, even_3);
    add(at + step, Whole{}, odd_0, odd_1, odd_2, odd_3);
  }
  if (at + step <= k) {
    add(at, Whole{}, even_0, even_1, even_2, even_3);
    at += step;
  }
  if (at < k) add(at, Part{k - at}, odd_0, odd_1, odd_2, odd_3);
  const auto total = [](Float even, Float odd) HWY_ATTR { return hn::GetLane(hn::SumOfLanes(FloatTag(), hn::Add(even, odd))); };
  sums[0] = total(even_0, odd_0);
  if constexpr (Rows > 1) sums[1] = total(even_1, odd_1);
  if constexpr (Rows > 2) sums[2] = total(even_2, odd_2);
  if constexpr (Rows > 3) sums[3] = total(even_3, odd_3);
}

template <typename E>
void multiply_row(std::int64_t n, std::int64_t k, const float* x, const E* b, std::int64_t ldb, float* sums) {
  std::int64_t row = 0;
  for (; row + kRows <= n; row += kRows) multiply_rows<kRows>(k, x, b + row * ldb, ldb, sums + row);
  for (; row < n; ++row) multiply_rows<1>(k, x, b + row * ldb, ldb, sums + row);
}

template <typename E>
GemvKernels<E> kernels() {
  return {multiply_row<E>};
}

}  // namespace
SPILLWAY_SIMD_TABLES(GemvKernels, gemv);
}  // namespace HWY_NAMESPACE
}  // namespace spillway::ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace spillway::ops {

SPILLWAY_SIMD_DISPATCH(GemvKernels, gemv);

template <typename E>
void multiply_row(std::int64_t n, std::int64_t k, const float* x, const E* b, std::int64_t ldb, float* sums) {
  best<E>().multiply_row(n, k, x, b, ldb, sums);
}
template void multiply_row(std::int64_t, std::int64_t, const float*, const float*, std::int64_t, float*);
template void multiply_row(std::int64_t, std::int64_t, const float*, const BFloat16*, std::int64_t, float*);

}  // namespace spillway::ops
#endif
