// Hands the rows of a matrix out to the pool, several per task, for one instruction set.
// Not here: what a row's kernel does, or how its sums are added to those of other rows (row_reduce-inl.h).
#if defined(SPILLWAY_MODELS_CPU_ROW_LOOP_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef SPILLWAY_MODELS_CPU_ROW_LOOP_INL_H
#undef SPILLWAY_MODELS_CPU_ROW_LOOP_INL_H
#else
#define SPILLWAY_MODELS_CPU_ROW_LOOP_INL_H
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>

#include "memory/base/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace spillway::ops {
namespace HWY_NAMESPACE {

// Calls body(row) for [0, n). A task takes `task_rows` rows, in their order.
template <typename Body>
HWY_INLINE void for_rows(const ThreadPool& pool, std::int64_t n, std::int64_t task_rows, const Body& body) {
  pool.parallel_for((n + task_rows - 1) / task_rows, [&](std::int64_t task, int) HWY_ATTR {
    for (std::int64_t row = task * task_rows; row < std::min(n, (task + 1) * task_rows); ++row) body(row);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace spillway::ops
HWY_AFTER_NAMESPACE();

#endif
