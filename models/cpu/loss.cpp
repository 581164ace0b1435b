// Cross entropy over the vocabulary, a tile of columns at a time: online maximum and sum, then the gradient in place.
#include "models/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "models/cpu/loss.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "memory/base/error.h"
#include "models/cpu/ops.h"
#include "models/cpu/row_loop-inl.h"
#include "models/cpu/simd-inl.h"
#include "models/cpu/simd_dispatch.h"

#ifndef SPILLWAY_MODELS_CPU_LOSS_TABLE
#define SPILLWAY_MODELS_CPU_LOSS_TABLE
namespace spillway::ops {
// One instruction set's kernels.
template <typename E>
struct LossKernels {
  decltype(&ops::loss_tile<E>) loss_tile;
  decltype(&ops::loss_gradient_tile<E>) loss_gradient_tile;
};
}  // namespace spillway::ops
#endif

HWY_BEFORE_NAMESPACE();
namespace spillway::ops {
namespace HWY_NAMESPACE {
namespace {

// Rows of a task: about as many elements as the second cache holds.
std::int64_t task_rows(std::int64_t width) { return std::clamp<std::int64_t>(128 * 1024 / width, 1, 64); }

template <typename E>
HWY_INLINE float row_maximum(std::int64_t count, const E* row) {
  const Float lowest = splat(-std::numeric_limits<float>::infinity());
  Float max_0 = lowest, max_1 = lowest;
  const std::int64_t step = lanes();
  std::int64_t i = 0;
  for (; i + 2 * step <= count; i += 2 * step) {
    max_0 = hn::Max(max_0, load(row + i, Whole{}));
    max_1 = hn::Max(max_1, load(row + i + step, Whole{}));
  }
  float maximum = hn::GetLane(hn::MaxOfLanes(FloatTag(), hn::Max(max_0, max_1)));
  for (; i < count; ++i) maximum = std::max(maximum, to_float(row[i]));
  return maximum;
}

template <typename E>
void loss_tile(const ThreadPool& pool, std::int64_t n, VocabularyTile tile, const E* logits, std::int64_t ld,
               const std::int32_t* targets, const SoftmaxState& state) {
  for_rows(pool, n, task_rows(tile.rows), [&](std::int64_t row) HWY_ATTR {
    const E* x = logits + row * ld;
    const float maximum = std::max(state.maximum[row], row_maximum(tile.rows, x));
    const Float m = splat(maximum);
    // A NaN among the logits is lost to the maximum, but not to this sum.
    const float sum = sum_vectors(
        tile.rows, [&](std::int64_t i, auto part) HWY_ATTR { return masked(exp(hn::Sub(load(x + i, part), m)), part); });
    state.sum[row] = state.sum[row] * std::exp(state.maximum[row] - maximum) + sum;
    state.maximum[row] = maximum;
    const std::int64_t at = targets[row] - tile.first;
    if (at >= 0 && at < tile.rows) state.target_logit[row] = to_float(x[at]);
  });
}

// The slope of capped() where its value is y; rounding may have taken y beyond the cap.
HWY_INLINE Float cap_slope(Float y, Float inverse_cap) {
  const Float t = hn::Mul(y, inverse_cap);
  return hn::Max(zero(), hn::NegMulAdd(t, t, splat(1.0f)));
}
inline float cap_slope(float y, float inverse_cap) {
  const float t = y * inverse_cap;
  return std::max(0.0f, 1.0f - t * t);
}

template <typename E, bool kCapped>
void loss_gradient_rows(const ThreadPool& pool, std::int64_t n, VocabularyTile tile, E* logits, std::int64_t ld,
                        const std::int32_t* targets, const float* log_sum_exp, float factor, float cap) {
  const float inverse_cap = kCapped ? 1.0f / cap : 0.0f;
  for_rows(pool, n, task_rows(tile.rows), [&](std::int64_t row) HWY_ATTR {
    E* x = logits + row * ld;
    if (targets[row] == kIgnoredTarget) {
      for_vectors(tile.rows, [&](std::int64_t i, auto part) HWY_ATTR { store(zero(), x + i, part); });
      return;
    }
    const std::int64_t at = targets[row] - tile.first;
    const bool here = at >= 0 && at < tile.rows;
    const float target_logit = here ? to_float(x[at]) : 0.0f;
    const Float shift = splat(log_sum_exp[row]), f = splat(factor), inverse = splat(inverse_cap);
    for_vectors(tile.rows, [&](std::int64_t i, auto part) HWY_ATTR {
      const Float logit = load(x + i, part);
      Float gradient = hn::Mul(exp(hn::Sub(logit, shift)), f);
      if constexpr (kCapped) gradient = hn::Mul(gradient, cap_slope(logit, inverse));
      store(gradient, x + i, part);
    });
    if (!here) return;
    // expm1, because a probability near 1 would cancel.
    float gradient = std::expm1(target_logit - log_sum_exp[row]) * factor;
    if constexpr (kCapped) gradient *= cap_slope(target_logit, inverse_cap);
    x[at] = from_float<E>(gradient);
  });
}

template <typename E>
void loss_gradient_tile(const ThreadPool& pool, std::int64_t n, VocabularyTile tile, E* logits, std::int64_t ld,
                        const std::int32_t* targets, const float* log_sum_exp, float factor, float cap) {
  const auto rows = cap == 0 ? loss_gradient_rows<E, false> : loss_gradient_rows<E, true>;
  rows(pool, n, tile, logits, ld, targets, log_sum_exp, factor, cap);
}

template <typename E>
LossKernels<E> kernels() {
  return {loss_tile<E>, loss_gradient_tile<E>};
}

}  // namespace
SPILLWAY_SIMD_TABLES(LossKernels, loss);
}  // namespace HWY_NAMESPACE
}  // namespace spillway::ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace spillway::ops {

SPILLWAY_SIMD_DISPATCH(LossKernels, loss);

void loss_begin(std::int64_t n, const SoftmaxState& state) {
  std::fill_n(state.maximum, n, -std::numeric_limits<float>::infinity());
  std::fill_n(state.sum, n, 0.0f);
  std::fill_n(state.target_logit, n, 0.0f);
}

template <typename E>
void loss_tile(const ThreadPool& pool, std::int64_t n, VocabularyTile tile, const E* logits, std::int64_t ld,
               const std::int32_t* targets, const SoftmaxState& state) {
  best<E>().loss_tile(pool, n, tile, logits, ld, targets, state);
}

Bytes loss_finish_scratch_bytes(std::int64_t n) { return n * static_cast<Bytes>(sizeof(double)); }

double loss_finish(std::int64_t n, const std::int32_t* targets, const SoftmaxState& state, float* log_sum_exp, float* row_loss,
                   std::byte* scratch) {
  auto* losses = reinterpret_cast<double*>(scratch);
  for (std::int64_t row = 0; row < n; ++row) {
    const double full = static_cast<double>(state.maximum[row]) + std::log(static_cast<double>(state.sum[row]));
    log_sum_exp[row] = static_cast<float>(full);
    losses[row] = targets[row] == kIgnoredTarget ? 0.0 : full - static_cast<double>(state.target_logit[row]);
    if (row_loss != nullptr) row_loss[row] = static_cast<float>(losses[row]);
  }
  return tree_sum({losses, static_cast<std::size_t>(n)});
}

template <typename E>
void loss_gradient_tile(const ThreadPool& pool, std::int64_t n, VocabularyTile tile, E* logits, std::int64_t ld,
                        const std::int32_t* targets, const float* log_sum_exp, float factor, float cap) {
  SPILLWAY_CHECK(cap >= 0 && std::isfinite(cap), "logits capped at {}", cap);
  best<E>().loss_gradient_tile(pool, n, tile, logits, ld, targets, log_sum_exp, factor, cap);
}

#define SPILLWAY_INSTANTIATE(E)                                                                                            \
  template void loss_tile(const ThreadPool&, std::int64_t, VocabularyTile, const E*, std::int64_t, const std::int32_t*,    \
                          const SoftmaxState&);                                                                            \
  template void loss_gradient_tile(const ThreadPool&, std::int64_t, VocabularyTile, E*, std::int64_t, const std::int32_t*, \
                                   const float*, float, float);
SPILLWAY_INSTANTIATE(float)
SPILLWAY_INSTANTIATE(BFloat16)
#undef SPILLWAY_INSTANTIATE

}  // namespace spillway::ops
#endif
