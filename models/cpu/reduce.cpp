// Reductions of whole tensors: bias gradients, the sum of squares of the gradient norm, the check for finite values.
#include "models/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "models/cpu/reduce.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <atomic>

#include "models/cpu/row_reduce-inl.h"
#include "models/cpu/simd-inl.h"
#include "models/cpu/simd_dispatch.h"
#include "models/ops.h"

#ifndef SPILLWAY_MODELS_CPU_REDUCE_TABLE
#define SPILLWAY_MODELS_CPU_REDUCE_TABLE
namespace spillway::ops {
// One instruction set's kernels.
template <typename E>
struct ReduceKernels {
  decltype(&ops::column_sums<E>) column_sums;
  decltype(&ops::all_finite<E>) all_finite;
  decltype(&ops::add_squares<E>) add_squares;
  void (*chunk_squares)(const ThreadPool& pool, std::int64_t elements, std::int64_t chunk, const E* x,
                        double* partial /*[chunks]*/);
  // The same of x rounded, which goes to y.
  void (*rounded_squares)(const ThreadPool& pool, std::int64_t elements, std::int64_t chunk, const float* x, E* y,
                          double* partial);
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

// In fp32 over stretches short enough not to lose digits, then in double. values(first, count): the address of a stretch.
template <typename Values>
double squares_of(double sum, std::int64_t begin, std::int64_t end, const Values& values) {
  for (std::int64_t first = begin; first < end; first += kSquareStretch) {
    const std::int64_t count = std::min(kSquareStretch, end - first);
    const auto* stretch = values(first, count);
    sum += static_cast<double>(sum_vectors(count, [&](std::int64_t i, auto part) HWY_ATTR {
      const Float v = load(stretch + i, part);
      return hn::Mul(v, v);
    }));
  }
  return sum;
}

template <typename Values>
void squares_of_chunks(const ThreadPool& pool, std::int64_t elements, std::int64_t chunk, double* partial, const Values& values) {
  const std::int64_t chunks = (elements + chunk - 1) / chunk, together = std::max<std::int64_t>(1, kSquareChunk / chunk);
  pool.parallel_for((chunks + together - 1) / together, [&](std::int64_t task, int) HWY_ATTR {
    for (std::int64_t at = task * together; at < std::min(chunks, (task + 1) * together); ++at)
      partial[at] = squares_of(0, at * chunk, std::min(elements, (at + 1) * chunk), values);
  });
}

template <typename E>
double add_squares(double sum, std::int64_t elements, const E* x) {
  return squares_of(sum, 0, elements, [x](std::int64_t first, std::int64_t) { return x + first; });
}

template <typename E>
void chunk_squares(const ThreadPool& pool, std::int64_t elements, std::int64_t chunk, const E* x, double* partial) {
  squares_of_chunks(pool, elements, chunk, partial, [x](std::int64_t first, std::int64_t) { return x + first; });
}

// A stretch is still in the first cache when it is squared.
template <typename E>
void rounded_squares(const ThreadPool& pool, std::int64_t elements, std::int64_t chunk, const float* x, E* y, double* partial) {
  squares_of_chunks(pool, elements, chunk, partial, [x, y](std::int64_t first, std::int64_t count) HWY_ATTR {
    for_vectors(count, [&](std::int64_t i, auto part) HWY_ATTR { store(load(x + first + i, part), y + first + i, part); });
    return y + first;
  });
}

// 0 times a finite value is 0, times any other a NaN.
template <typename E>
bool all_finite(const ThreadPool& pool, std::int64_t elements, const E* x) {
  std::atomic<bool> finite = true;
  pool.parallel_for((elements + kSquareChunk - 1) / kSquareChunk, [&](std::int64_t chunk, int) HWY_ATTR {
    const std::int64_t first = chunk * kSquareChunk;
    const float sum = sum_vectors(std::min(kSquareChunk, elements - first),
                                  [&](std::int64_t i, auto part) HWY_ATTR { return hn::Mul(load(x + first + i, part), zero()); });
    if (!(sum == 0.0f)) finite.store(false, std::memory_order_relaxed);
  });
  return finite.load();
}

template <typename E>
ReduceKernels<E> kernels() {
  return {column_sums<E>, all_finite<E>, add_squares<E>, chunk_squares<E>, rounded_squares<E>};
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
Bytes sum_of_squares_scratch_bytes(std::int64_t elements) { return (elements + kSquareChunk - 1) / kSquareChunk * 8; }

namespace {
double sum_of_chunks(std::int64_t elements, double* partial /*[chunks]*/) {
  return tree_sum({partial, static_cast<std::size_t>((elements + kSquareChunk - 1) / kSquareChunk)});
}
}  // namespace

template <typename E>
void column_sums(const ThreadPool& pool, std::int64_t n, std::int64_t columns, const E* dy, float* sums, Store how,
                 std::byte* scratch) {
  best<E>().column_sums(pool, n, columns, dy, sums, how, scratch);
}
template <typename E>
bool all_finite(const ThreadPool& pool, std::int64_t elements, const E* x) {
  return best<E>().all_finite(pool, elements, x);
}
template <typename E>
double sum_of_squares(const ThreadPool& pool, std::int64_t elements, const E* x, std::byte* scratch) {
  auto* partial = reinterpret_cast<double*>(scratch);
  best<E>().chunk_squares(pool, elements, kSquareChunk, x, partial);
  return sum_of_chunks(elements, partial);
}
template <typename E>
double add_squares(double sum, std::int64_t elements, const E* x) {
  return best<E>().add_squares(sum, elements, x);
}
template <typename E>
double round_and_square(const ThreadPool& pool, std::int64_t elements, const float* x, E* y, std::byte* scratch) {
  auto* partial = reinterpret_cast<double*>(scratch);
  best<E>().rounded_squares(pool, elements, kSquareChunk, x, y, partial);
  return sum_of_chunks(elements, partial);
}

template <typename E>
void row_squares(const ThreadPool& pool, std::int64_t rows, std::int64_t columns, const E* x, double* sums) {
  best<E>().chunk_squares(pool, rows * columns, columns, x, sums);
}
template <typename E>
void round_and_square_rows(const ThreadPool& pool, std::int64_t rows, std::int64_t columns, const float* x, E* y, double* sums) {
  best<E>().rounded_squares(pool, rows * columns, columns, x, y, sums);
}

#define SPILLWAY_INSTANTIATE(E)                                                                                  \
  template void column_sums(const ThreadPool&, std::int64_t, std::int64_t, const E*, float*, Store, std::byte*); \
  template bool all_finite(const ThreadPool&, std::int64_t, const E*);                                           \
  template double sum_of_squares(const ThreadPool&, std::int64_t, const E*, std::byte*);                         \
  template double add_squares(double, std::int64_t, const E*);                                                   \
  template double round_and_square(const ThreadPool&, std::int64_t, const float*, E*, std::byte*);               \
  template void row_squares(const ThreadPool&, std::int64_t, std::int64_t, const E*, double*);                   \
  template void round_and_square_rows(const ThreadPool&, std::int64_t, std::int64_t, const float*, E*, double*);
SPILLWAY_INSTANTIATE(float)
SPILLWAY_INSTANTIATE(BFloat16)
#undef SPILLWAY_INSTANTIATE

}  // namespace spillway::ops
#endif
