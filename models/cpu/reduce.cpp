// Reductions of whole tensors: bias gradients, the check for finite values. Not here: sums of squares (squares.cpp).
#include "models/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "models/cpu/reduce.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <atomic>

#include "models/cpu/ops.h"
#include "models/cpu/row_reduce-inl.h"
#include "models/cpu/simd-inl.h"
#include "models/cpu/simd_dispatch.h"

#ifndef SPILLWAY_MODELS_CPU_REDUCE_TABLE
#define SPILLWAY_MODELS_CPU_REDUCE_TABLE
namespace spillway::ops {
// One instruction set's kernels.
template <typename E>
struct ReduceKernels {
  decltype(&ops::column_sums<E>) column_sums;
  decltype(&ops::all_finite<E>) all_finite;
};
}  // namespace spillway::ops
#endif

HWY_BEFORE_NAMESPACE();
namespace spillway::ops {
namespace HWY_NAMESPACE {
namespace {

template <typename E>
void column_sums(const ThreadPool& pool, std::int64_t n, std::int64_t columns, const E* dy, float* sums, Store how,
                 std::byte* scratch) {
  auto* partial = reinterpret_cast<float*>(scratch);
  constexpr std::int64_t kStrip = 1024;  // columns whose running sums stay in the first cache
  const std::int64_t strips = (columns + kStrip - 1) / kStrip;
  pool.parallel_for(row_blocks(n) * strips, [&](std::int64_t task, int) HWY_ATTR {
    const std::int64_t block = task / strips, first = task % strips * kStrip, count = std::min(kStrip, columns - first);
    float* out = partial + block * columns + first;
    const std::int64_t begin = block * kBlockRows, end = std::min(n, begin + kBlockRows);
    for_vectors(count,
                [&](std::int64_t i, auto part) HWY_ATTR { store(load(dy + begin * columns + first + i, part), out + i, part); });
    for (std::int64_t row = begin + 1; row < end; ++row) {
      const E* in = dy + row * columns + first;
      for_vectors(count, [&](std::int64_t i, auto part)
                             HWY_ATTR { store(hn::Add(load(out + i, part), load(in + i, part)), out + i, part); });
    }
  });
  reduce_blocks(pool, row_blocks(n), columns, partial, sums, how);
}

// 0 times a finite value is 0; 0 times any other is a NaN.
template <typename E>
bool all_finite(const ThreadPool& pool, std::int64_t elements, const E* x) {
  constexpr std::int64_t kChunk = 64 << 10;
  std::atomic<bool> finite = true;
  pool.parallel_for((elements + kChunk - 1) / kChunk, [&](std::int64_t chunk, int) HWY_ATTR {
    const std::int64_t first = chunk * kChunk;
    const float sum = sum_vectors(std::min(kChunk, elements - first),
                                  [&](std::int64_t i, auto part) HWY_ATTR { return hn::Mul(load(x + first + i, part), zero()); });
    if (!(sum == 0.0f)) finite.store(false, std::memory_order_relaxed);
  });
  return finite.load();
}

template <typename E>
ReduceKernels<E> kernels() {
  return {column_sums<E>, all_finite<E>};
}

}  // namespace
SPILLWAY_SIMD_TABLES(ReduceKernels, reduce);
}  // namespace HWY_NAMESPACE
}  // namespace spillway::ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace spillway::ops {

SPILLWAY_SIMD_DISPATCH(ReduceKernels, reduce);

double tree_sum(std::span<double> values) {
  if (values.empty()) return 0.0;
  along_tree(static_cast<std::int64_t>(values.size()), [&](std::int64_t to, std::int64_t from) {
    values[static_cast<std::size_t>(to)] += values[static_cast<std::size_t>(from)];
  });
  return values[0];
}

Bytes column_sums_scratch_bytes(std::int64_t n, std::int64_t columns) { return partial_sums_bytes(n, columns); }

template <typename E>
void column_sums(const ThreadPool& pool, std::int64_t n, std::int64_t columns, const E* dy, float* sums, Store how,
                 std::byte* scratch) {
  best<E>().column_sums(pool, n, columns, dy, sums, how, scratch);
}
template <typename E>
bool all_finite(const ThreadPool& pool, std::int64_t elements, const E* x) {
  return best<E>().all_finite(pool, elements, x);
}

#define SPILLWAY_INSTANTIATE(E)                                                                                  \
  template void column_sums(const ThreadPool&, std::int64_t, std::int64_t, const E*, float*, Store, std::byte*); \
  template bool all_finite(const ThreadPool&, std::int64_t, const E*);
SPILLWAY_INSTANTIATE(float)
SPILLWAY_INSTANTIATE(BFloat16)
#undef SPILLWAY_INSTANTIATE

}  // namespace spillway::ops
#endif
