// Sinks of attention: a pass over the results of attention that weighs them anew, and the sinks' gradient.
#include "models/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "models/cpu/attention/attention_sink.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cmath>

#include "models/cpu/attention/attention_ops.h"
#include "models/cpu/row_loop-inl.h"
#include "models/cpu/simd-inl.h"
#include "models/cpu/simd_dispatch.h"

#ifndef SPILLWAY_MODELS_CPU_ATTENTION_SINK_TABLE
#define SPILLWAY_MODELS_CPU_ATTENTION_SINK_TABLE
namespace spillway::ops {
// One instruction set's kernels.
template <typename E>
struct SinkKernels {
  decltype(&ops::sink_forward<E>) forward;
  decltype(&ops::sink_backward<E>) backward;
};
}  // namespace spillway::ops
#endif

HWY_BEFORE_NAMESPACE();
namespace spillway::ops {
namespace HWY_NAMESPACE {
namespace {

// The place of a row's log-sum-exp of a head.
std::int64_t lse_at(const AttentionShape& s, std::int64_t row, std::int64_t head) {
  return (row / s.queries * s.heads + head) * s.queries + row % s.queries;
}

template <typename E>
void forward(const ThreadPool& pool, const AttentionShape& s, const E* sinks, float* lse, E* o) {
  constexpr std::int64_t task_rows = 8;
  for_rows(pool, s.sequences * s.queries, task_rows, [&](std::int64_t row) HWY_ATTR {
    for (std::int64_t head = 0; head < s.heads; ++head) {
      float& log_sum = lse[lse_at(s, row, head)];
      const float sink = to_float(sinks[head]), rest = 1.0f / (1.0f + std::exp(sink - log_sum));
      log_sum = std::max(sink, log_sum) + std::log1p(std::exp(-std::abs(sink - log_sum)));
      const Float factor = splat(rest);
      E* const to = o + (row * s.heads + head) * s.head_dim;
      for_vectors(s.head_dim,
                  [&](std::int64_t d, auto part) HWY_ATTR { store(hn::Mul(load(to + d, part), factor), to + d, part); });
    }
  });
}

// A head's sum goes through the rows in their order.
template <typename E>
void backward(const ThreadPool& pool, const AttentionShape& s, const E* sinks, const float* lse, const E* o, const E* d_o,
              float* dsinks, Store store_as) {
  for_rows(pool, s.heads, 1, [&](std::int64_t head) HWY_ATTR {
    const float sink = to_float(sinks[head]);
    double sum = 0;
    for (std::int64_t row = 0; row < s.sequences * s.queries; ++row) {
      const std::int64_t at = (row * s.heads + head) * s.head_dim;
      const float along = sum_vectors(s.head_dim, [&](std::int64_t d, auto part) HWY_ATTR {
        return hn::Mul(load(o + at + d, part), load(d_o + at + d, part));
      });
      sum -= static_cast<double>(std::exp(sink - lse[lse_at(s, row, head)])) * static_cast<double>(along);
    }
    dsinks[head] = static_cast<float>(store_as == Store::add ? static_cast<double>(dsinks[head]) + sum : sum);
  });
}

template <typename E>
SinkKernels<E> kernels() {
  return {forward<E>, backward<E>};
}

}  // namespace
SPILLWAY_SIMD_TABLES(SinkKernels, attention_sink);
}  // namespace HWY_NAMESPACE
}  // namespace spillway::ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace spillway::ops {

SPILLWAY_SIMD_DISPATCH(SinkKernels, attention_sink);

template <typename E>
void sink_forward(const ThreadPool& pool, const AttentionShape& shape, const E* sinks, float* lse, E* o) {
  best<E>().forward(pool, shape, sinks, lse, o);
}
template <typename E>
void sink_backward(const ThreadPool& pool, const AttentionShape& shape, const E* sinks, const float* lse, const E* o,
                   const E* d_o, float* dsinks, Store store) {
  best<E>().backward(pool, shape, sinks, lse, o, d_o, dsinks, store);
}

#define SPILLWAY_INSTANTIATE(E)                                                                                             \
  template void sink_forward(const ThreadPool&, const AttentionShape&, const E*, float*, E*);                               \
  template void sink_backward(const ThreadPool&, const AttentionShape&, const E*, const float*, const E*, const E*, float*, \
                              Store);
SPILLWAY_INSTANTIATE(float)
SPILLWAY_INSTANTIATE(BFloat16)
#undef SPILLWAY_INSTANTIATE

}  // namespace spillway::ops
#endif
