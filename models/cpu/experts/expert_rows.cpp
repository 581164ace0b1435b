// How an expert takes its rows from a micro-batch, weighs them, and adds its results: one pass over the rows each.
#include "models/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "models/cpu/experts/expert_rows.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>

#include "models/cpu/experts/routing_ops.h"
#include "models/cpu/row_loop-inl.h"
#include "models/cpu/simd-inl.h"
#include "models/cpu/simd_dispatch.h"

#ifndef SPILLWAY_MODELS_CPU_EXPERT_ROWS_TABLE
#define SPILLWAY_MODELS_CPU_EXPERT_ROWS_TABLE
namespace spillway::ops {
// One instruction set's kernels.
template <typename E>
struct ExpertRowKernels {
  decltype(&ops::add_rows<E>) add_rows;
  decltype(&ops::weigh_rows<E>) weigh_rows;
  decltype(&ops::sum_rows<E>) sum_rows;
};
}  // namespace spillway::ops
#endif

HWY_BEFORE_NAMESPACE();
namespace spillway::ops {
namespace HWY_NAMESPACE {
namespace {

constexpr std::int64_t kTaskRows = 8;

// A row comes to an expert once, so no two tasks add to the same one.
template <typename E>
void add_rows(const ThreadPool& pool, std::int64_t used, std::int64_t H, std::int64_t k, const std::int32_t* places,
              const float* weights, const E* bias, const float* out, float* sum) {
  for_rows(pool, used, kTaskRows, [&](std::int64_t i) HWY_ATTR {
    const Float factor = splat(weights == nullptr ? 1.0f : weights[places[i]]);
    float* const to = sum + places[i] / k * H;
    for_vectors(H, [&](std::int64_t j, auto part) HWY_ATTR {
      Float added = load(out + i * H + j, part);
      if (bias != nullptr) added = hn::Add(added, load(bias + j, part));
      store(hn::MulAdd(factor, added, load(to + j, part)), to + j, part);
    });
  });
}

template <typename E>
void weigh_rows(const ThreadPool& pool, std::int64_t used, std::int64_t I, std::int64_t H, const std::int32_t* places,
                const float* weights, const RowsToWeigh<E>& rows, float* dweights) {
  for_rows(pool, used, kTaskRows, [&](std::int64_t i) HWY_ATTR {
    const float weight = weights[places[i]];
    const Float factor = splat(weight);
    E *const h = rows.h + i * I, *const dup = rows.dup + i * 2 * I;
    float along = sum_vectors(I, [&](std::int64_t j, auto part) HWY_ATTR {
      const Float value = load(h + j, part);
      store(hn::Mul(value, factor), h + j, part);
      return hn::Mul(value, load(rows.dh + i * I + j, part));
    });
    if (rows.bias != nullptr) {
      along += sum_vectors(H, [&](std::int64_t j, auto part)
                                  HWY_ATTR { return hn::Mul(load(rows.bias + j, part), load(rows.dy + i * H + j, part)); });
    }
    dweights[places[i]] = along;
    for_vectors(2 * I, [&](std::int64_t j, auto part) HWY_ATTR { store(hn::Mul(load(dup + j, part), factor), dup + j, part); });
  });
}

// A task has some columns, and goes through the rows in their order.
template <typename E>
void sum_rows(const ThreadPool& pool, std::int64_t used, std::int64_t columns, const std::int32_t* places, const float* weights,
              const E* x, float* sums, Store how) {
  constexpr std::int64_t task_columns = 512;
  for_rows(pool, (columns + task_columns - 1) / task_columns, 1, [&](std::int64_t task) HWY_ATTR {
    const std::int64_t first = task * task_columns, count = std::min(task_columns, columns - first);
    float* const to = sums + first;
    if (how == Store::write) std::fill_n(to, first + count == columns ? padded(columns) - first : count, 0.0f);
    for (std::int64_t i = 0; i < used; ++i) {
      const Float factor = splat(weights == nullptr ? 1.0f : weights[places[i]]);
      const E* const row = x + i * columns + first;
      for_vectors(count, [&](std::int64_t j, auto part)
                             HWY_ATTR { store(hn::MulAdd(factor, load(row + j, part), load(to + j, part)), to + j, part); });
    }
  });
}

template <typename E>
ExpertRowKernels<E> kernels() {
  return {add_rows<E>, weigh_rows<E>, sum_rows<E>};
}

}  // namespace
SPILLWAY_SIMD_TABLES(ExpertRowKernels, expert_rows);
}  // namespace HWY_NAMESPACE
}  // namespace spillway::ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace spillway::ops {

SPILLWAY_SIMD_DISPATCH(ExpertRowKernels, expert_rows);

template <typename E>
void gather_rows(const ThreadPool& pool, std::int64_t m, std::int64_t used, std::int64_t H, std::int64_t k,
                 const std::int32_t* places, const E* x, E* rows) {
  constexpr std::int64_t task_rows = 16;
  const auto bytes = static_cast<std::size_t>(H) * sizeof(E);
  pool.parallel_for((m + task_rows - 1) / task_rows, [&](std::int64_t task, int) {
    for (std::int64_t i = task * task_rows; i < std::min(m, (task + 1) * task_rows); ++i) {
      if (i < used) {
        std::memcpy(rows + i * H, x + places[i] / k * H, bytes);
      } else {
        std::memset(static_cast<void*>(rows + i * H), 0, bytes);
      }
    }
  });
}

template <typename E>
void add_rows(const ThreadPool& pool, std::int64_t used, std::int64_t H, std::int64_t k, const std::int32_t* places,
              const float* weights, const E* bias, const float* out, float* sum) {
  best<E>().add_rows(pool, used, H, k, places, weights, bias, out, sum);
}

template <typename E>
void weigh_rows(const ThreadPool& pool, std::int64_t used, std::int64_t I, std::int64_t H, const std::int32_t* places,
                const float* weights, const RowsToWeigh<E>& rows, float* dweights) {
  best<E>().weigh_rows(pool, used, I, H, places, weights, rows, dweights);
}

template <typename E>
void sum_rows(const ThreadPool& pool, std::int64_t used, std::int64_t columns, const std::int32_t* places, const float* weights,
              const E* x, float* sums, Store store) {
  best<E>().sum_rows(pool, used, columns, places, weights, x, sums, store);
}

#define SPILLWAY_INSTANTIATE(E)                                                                                              \
  template void gather_rows(const ThreadPool&, std::int64_t, std::int64_t, std::int64_t, std::int64_t, const std::int32_t*,  \
                            const E*, E*);                                                                                   \
  template void add_rows(const ThreadPool&, std::int64_t, std::int64_t, std::int64_t, const std::int32_t*, const float*,     \
                         const E*, const float*, float*);                                                                    \
  template void weigh_rows(const ThreadPool&, std::int64_t, std::int64_t, std::int64_t, const std::int32_t*, const float*,   \
                           const RowsToWeigh<E>&, float*);                                                                   \
  template void sum_rows(const ThreadPool&, std::int64_t, std::int64_t, const std::int32_t*, const float*, const E*, float*, \
                         Store);
SPILLWAY_INSTANTIATE(float)
SPILLWAY_INSTANTIATE(BFloat16)
#undef SPILLWAY_INSTANTIATE

}  // namespace spillway::ops
#endif
