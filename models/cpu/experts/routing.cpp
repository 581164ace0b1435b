// A mixture's router: softmax, the choice of experts, the table of rows by expert, and the way back.
#include "models/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "models/cpu/experts/routing.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <utility>

#include "memory/base/error.h"
#include "models/cpu/experts/routing_ops.h"
#include "models/cpu/row_loop-inl.h"
#include "models/cpu/simd-inl.h"
#include "models/cpu/simd_dispatch.h"

#ifndef SPILLWAY_MODELS_CPU_ROUTING_TABLE
#define SPILLWAY_MODELS_CPU_ROUTING_TABLE
namespace spillway::ops {
inline constexpr std::int64_t kMostExperts = 1025;  // a row's gradient is on the stack

// One instruction set's kernels.
template <typename E>
struct RoutingKernels {
  bool (*probabilities)(const ThreadPool& pool, const RouterShape& shape, float* scores, float* log_sums);
  decltype(&ops::route_backward<E>) route_backward;
};
}  // namespace spillway::ops
#endif

HWY_BEFORE_NAMESPACE();
namespace spillway::ops {
namespace HWY_NAMESPACE {
namespace {

constexpr std::int64_t kTaskRows = 32;

// Softmax in place, and its log-sum-exp. False where that is not finite.
HWY_INLINE bool softmax_row(float* p, std::int64_t experts, float& log_sum) {
  float most = p[0];
  for (std::int64_t e = 1; e < experts; ++e) most = std::max(most, p[e]);
  const Float shift = splat(most);
  const float sum = sum_vectors(experts, [&](std::int64_t e, auto part) HWY_ATTR {
    const Float power = masked(exp(hn::Sub(load(p + e, part), shift)), part);
    store(power, p + e, part);
    return power;
  });
  const Float factor = splat(1.0f / sum);
  for_vectors(experts, [&](std::int64_t e, auto part) HWY_ATTR { store(hn::Mul(load(p + e, part), factor), p + e, part); });
  log_sum = most + std::log(sum);
  return std::isfinite(log_sum);
}

bool probabilities(const ThreadPool& pool, const RouterShape& shape, float* scores, float* log_sums) {
  std::atomic<bool> all_finite = true;
  for_rows(pool, shape.rows, kTaskRows, [&](std::int64_t row) HWY_ATTR {
    float* const p = scores + row * shape.columns();
    if (!softmax_row(p, shape.experts, log_sums[row])) all_finite = false;
    if (!shape.shared) return;
    if (!std::isfinite(p[shape.experts])) all_finite = false;
    p[shape.experts] = 1.0f / (1.0f + std::exp(-p[shape.experts]));
  });
  return all_finite;
}

// Through the weights of a row's experts to its probabilities, then through the softmax.
template <typename E>
void route_backward(const ThreadPool& pool, const RouterShape& shape, const float* dweights, const float* scores,
                    const float* log_sums, const Routing& routing, const float* slope, float z, E* dlogits) {
  const std::int64_t experts = shape.experts, places = shape.places();
  for_rows(pool, shape.rows, kTaskRows, [&](std::int64_t row) HWY_ATTR {
    const std::int64_t first = row * places, chosen = first + shape.per_row;
    const float* const p = scores + row * shape.columns();
    E* const d = dlogits + row * shape.columns();
    float dp[kMostExperts];
    std::copy_n(slope, experts, dp);
    float whole = 1, along = 0;
    if (shape.normalised) {
      whole = 0;
      for (std::int64_t place = first; place < chosen; ++place) {
        whole += p[routing.experts[place]];
        along += dweights[place] * routing.weights[place];
      }
    }
    for (std::int64_t place = first; place < chosen; ++place)
      dp[routing.experts[place]] += (shape.factor * dweights[place] - along) / whole;
    const float mean =
        sum_vectors(experts, [&](std::int64_t e, auto part) HWY_ATTR { return hn::Mul(load(dp + e, part), load(p + e, part)); });
    const Float shift = splat(z * log_sums[row] - mean);
    for_vectors(experts, [&](std::int64_t e, auto part)
                             HWY_ATTR { store(hn::Mul(load(p + e, part), hn::Add(load(dp + e, part), shift)), d + e, part); });
    if (!shape.shared) return;
    const float slope_of_shared = p[experts] * (1.0f - p[experts]) * shape.factor * dweights[chosen];
    store(splat(slope_of_shared), d + experts, Part{1});
  });
}

template <typename E>
RoutingKernels<E> kernels() {
  return {probabilities, route_backward<E>};
}

}  // namespace
SPILLWAY_SIMD_TABLES(RoutingKernels, routing);
}  // namespace HWY_NAMESPACE
}  // namespace spillway::ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace spillway::ops {

SPILLWAY_SIMD_DISPATCH(RoutingKernels, routing);

namespace {

constexpr std::int64_t kChoiceRows = 64, kTotalsColumns = 16;  // of a task

// The k experts with the largest probabilities, ascending; of equal ones the lower number, and a NaN last.
void choose(const float* p, const RouterShape& shape, std::int32_t* chosen) {
  std::array<float, kMostExperts> sizes;  // of those chosen so far, descending
  const std::int64_t k = shape.per_row;
  std::int64_t count = 0;
  for (std::int64_t e = 0; e < shape.experts; ++e) {
    const float size = std::isnan(p[e]) ? -1.0f : p[e];
    if (count == k && size <= sizes[static_cast<std::size_t>(k - 1)]) continue;
    std::int64_t at = count < k ? count++ : k - 1;
    for (; at > 0 && sizes[static_cast<std::size_t>(at - 1)] < size; --at) {
      sizes[static_cast<std::size_t>(at)] = sizes[static_cast<std::size_t>(at - 1)];
      chosen[at] = chosen[at - 1];
    }
    sizes[static_cast<std::size_t>(at)] = size;
    chosen[at] = static_cast<std::int32_t>(e);
  }
  std::sort(chosen, chosen + k);
}

}  // namespace

bool route(const ThreadPool& pool, const RouterShape& shape, float* scores, float* log_sums, const Routing& to) {
  const std::int64_t k = shape.per_row, experts = shape.experts, places = shape.places();
  SPILLWAY_CHECK(k >= 1 && k <= experts && shape.columns() <= kMostExperts, "{} of {} experts a row", k, experts);
  const bool all_finite = best<float>().probabilities(pool, shape, scores, log_sums);
  pool.parallel_for((shape.rows + kChoiceRows - 1) / kChoiceRows, [&](std::int64_t task, int) {
    for (std::int64_t row = task * kChoiceRows; row < std::min(shape.rows, (task + 1) * kChoiceRows); ++row) {
      const float* const p = scores + row * shape.columns();
      std::int32_t* const chosen = to.experts + row * places;
      float* const weights = to.weights + row * places;
      choose(p, shape, chosen);
      float whole = 0;
      for (std::int64_t j = 0; j < k; ++j) whole += p[chosen[j]];
      for (std::int64_t j = 0; j < k; ++j) weights[j] = shape.factor * (shape.normalised ? p[chosen[j]] / whole : p[chosen[j]]);
      if (shape.shared) chosen[k] = static_cast<std::int32_t>(experts), weights[k] = shape.factor * p[experts];
    }
  });
  // A counting sort: begins[e + 1] counts expert e, then says where its next place goes, and at last where it ends.
  std::fill_n(to.begins, shape.columns() + 1, 0);
  for (std::int64_t place = 0; place < shape.rows * places; ++place) ++to.begins[to.experts[place] + 1];
  std::int32_t begin = 0;
  for (std::int64_t e = 1; e <= shape.columns(); ++e) begin += std::exchange(to.begins[e], begin);
  for (std::int64_t place = 0; place < shape.rows * places; ++place)
    to.places[to.begins[to.experts[place] + 1]++] = static_cast<std::int32_t>(place);
  return all_finite;
}

void add_routing(const ThreadPool& pool, const RouterShape& shape, const float* scores, const float* log_sums,
                 const Routing& routing, double* totals) {
  const std::int64_t experts = shape.experts;
  for (std::int64_t e = 0; e < experts; ++e) totals[e] += routing.begins[e + 1] - routing.begins[e];
  pool.parallel_for((experts + kTotalsColumns - 1) / kTotalsColumns, [&](std::int64_t task, int) {
    std::array<double, kTotalsColumns> sums{};
    const std::int64_t first = task * kTotalsColumns, count = std::min(kTotalsColumns, experts - first);
    for (std::int64_t row = 0; row < shape.rows; ++row) {
      for (std::int64_t e = 0; e < count; ++e) sums[static_cast<std::size_t>(e)] += scores[row * shape.columns() + first + e];
    }
    for (std::int64_t e = 0; e < count; ++e) totals[experts + first + e] += sums[static_cast<std::size_t>(e)];
  });
  double squares = 0;
  for (std::int64_t row = 0; row < shape.rows; ++row) squares += static_cast<double>(log_sums[row]) * log_sums[row];
  totals[2 * experts] += squares;
}

void add_load(const RouterShape& shape, const Routing& routing, std::int64_t layers, ExpertLoad& load) {
  const auto experts = static_cast<double>(shape.experts), whole = static_cast<double>(shape.rows * shape.per_row);
  double entropy = 0;
  for (std::int64_t e = 0; e < shape.experts; ++e) {
    const double share = (routing.begins[e + 1] - routing.begins[e]) / whole;
    load.most = std::max(load.most, experts * share), load.least = std::min(load.least, experts * share);
    if (share > 0) entropy -= share * std::log(share);
  }
  if (shape.experts > 1) load.entropy += entropy / std::log(experts) / static_cast<double>(layers);
}

template <typename E>
void route_backward(const ThreadPool& pool, const RouterShape& shape, const float* dweights, const float* scores,
                    const float* log_sums, const Routing& routing, const float* slope, float z, E* dlogits) {
  SPILLWAY_CHECK(shape.columns() <= kMostExperts, "{} experts", shape.experts);
  best<E>().route_backward(pool, shape, dweights, scores, log_sums, routing, slope, z, dlogits);
}

template void route_backward(const ThreadPool&, const RouterShape&, const float*, const float*, const float*, const Routing&,
                             const float*, float, float*);
template void route_backward(const ThreadPool&, const RouterShape&, const float*, const float*, const float*, const Routing&,
                             const float*, float, BFloat16*);

}  // namespace spillway::ops
#endif
