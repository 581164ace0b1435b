// Sums of squares over nodes of the tree of memory/plan/square_tree.h. They are in double, where the square of a float is exact
// and no finite one overflows, and in an order that is the same whatever the width of the vectors.
#include "models/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "models/cpu/squares.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>

#include "memory/plan/square_tree.h"
#include "models/cpu/ops.h"
#include "models/cpu/simd-inl.h"
#include "models/cpu/simd_dispatch.h"

#ifndef SPILLWAY_MODELS_CPU_SQUARES_TABLE
#define SPILLWAY_MODELS_CPU_SQUARES_TABLE
namespace spillway::ops {
// One instruction set's kernels.
template <typename E>
struct SquareKernels {
  decltype(&ops::square_nodes<E>) square_nodes;
  decltype(&ops::round_and_square_nodes<E>) round_and_square_nodes;
};
inline constexpr std::int64_t kStretchLeaves = kSquareStretch / kSquareLeaf;
// Running sums of a leaf: its i-th element belongs to the (i mod 4)-th. They end as (0 + 1) + (2 + 3).
inline constexpr std::int64_t kLeafSums = 4;
// Distance in elements of the prefetch: the additions between two stretches would let the processor's own prefetching fall behind
// (10 GB/s per core without this, 14 with it; 43 out of the caches).
inline constexpr std::int64_t kAhead = 640;
}  // namespace spillway::ops
#endif

HWY_BEFORE_NAMESPACE();
namespace spillway::ops {
namespace HWY_NAMESPACE {
namespace {

// Vectors have four lanes at every width from 256 bits on: wider ones would have to be parted before they can be added.
#if HWY_MAX_BYTES >= 32

using Four = hn::FixedTag<double, 4>;

HWY_INLINE hn::Vec<Four> load_four(const float* x) { return hn::PromoteTo(Four(), hn::LoadU(hn::Rebind<float, Four>(), x)); }
HWY_INLINE hn::Vec<Four> load_four(const BFloat16* x) {
  const hn::Rebind<std::uint32_t, Four> d32;
  const auto bits = hn::PromoteTo(d32, hn::LoadU(hn::Rebind<std::uint16_t, Four>(), reinterpret_cast<const std::uint16_t*>(x)));
  return hn::PromoteTo(Four(), hn::BitCast(hn::Rebind<float, Four>(), hn::ShiftLeft<16>(bits)));
}

// A fused multiply-add gives the same as a plain one, because the product is exact.
template <typename E>
HWY_INLINE void square_leaf(const E* x, double* sums /*[kLeafSums]*/) {
  auto v = load_four(x);
  auto sum = hn::Mul(v, v);
  for (std::int64_t i = kLeafSums; i < kSquareLeaf; i += kLeafSums) {
    v = load_four(x + i);
    sum = hn::MulAdd(v, v, sum);
  }
  hn::StoreU(sum, Four(), sums);
}

HWY_INLINE void add_four_fours(const double* in, double* out) {
  const Four d;
  const auto a = hn::LoadU(d, in), b = hn::LoadU(d, in + 4), c = hn::LoadU(d, in + 8), e = hn::LoadU(d, in + 12);
  const auto ab = hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b)),
             ce = hn::Add(hn::InterleaveLower(d, c, e), hn::InterleaveUpper(d, c, e));
  hn::StoreU(hn::Add(hn::ConcatLowerLower(d, ce, ab), hn::ConcatUpperUpper(d, ce, ab)), d, out);
}

#else

template <typename E>
HWY_INLINE void square_leaf(const E* x, double* sums /*[kLeafSums]*/) {
  for (std::int64_t j = 0; j < kLeafSums; ++j) sums[j] = 0;
  for (std::int64_t i = 0; i < kSquareLeaf; ++i) sums[i % kLeafSums] += double{to_float(x[i])} * double{to_float(x[i])};
}

HWY_INLINE void add_four_fours(const double* in, double* out) {
  for (int i = 0; i < 4; ++i) out[i] = (in[4 * i] + in[4 * i + 1]) + (in[4 * i + 2] + in[4 * i + 3]);
}

#endif

// values[i] = (values[4i] + values[4i + 1]) + (values[4i + 2] + values[4i + 3]) for i in [0, count).
template <std::int64_t count>
HWY_INLINE void add_fours(double* values) {
  static_assert(count % 4 == 0);
  for (std::int64_t i = 0; i < count; i += 4) add_four_fours(values + 4 * i, values + i);
}

// Squares a whole stretch into sums[kSquareStretch / node].
template <typename E>
void square_stretch(std::int64_t node, const E* x, double* sums) {
  static_assert(kLeafSums == 4 && kStretchLeaves == 64);
  double values[kStretchLeaves * kLeafSums];
  for (std::int64_t leaf = 0; leaf < kStretchLeaves; ++leaf) {
    hwy::Prefetch(x + leaf * kSquareLeaf + kAhead);
    square_leaf(x + leaf * kSquareLeaf, values + leaf * kLeafSums);
  }
  add_fours<kStretchLeaves>(values);
  if (node >= 4 * kSquareLeaf) add_fours<kStretchLeaves / 4>(values);
  if (node >= 16 * kSquareLeaf) add_fours<kStretchLeaves / 16>(values);
  // Left to add are four values per node, two, or none.
  const std::int64_t count = kSquareStretch / node;
  if (node == kSquareStretch) {
    sums[0] = (values[0] + values[1]) + (values[2] + values[3]);
  } else if (node == 2 * kSquareLeaf || node == 8 * kSquareLeaf || node == 32 * kSquareLeaf) {
    for (std::int64_t i = 0; i < count; ++i) sums[i] = values[2 * i] + values[2 * i + 1];
  } else {
    std::copy_n(values, count, sums);
  }
}

// values(first, count) returns the address of these elements of x.
template <typename E, typename Values>
void square_stretches(std::int64_t elements, std::int64_t node, double* sums, const Values& values) {
  for (std::int64_t first = 0; first < elements; first += kSquareStretch, sums += kSquareStretch / node) {
    const std::int64_t count = std::min(kSquareStretch, elements - first);
    const E* stretch = values(first, count);
    if (count == kSquareStretch) {
      square_stretch(node, stretch, sums);
      continue;
    }
    E padded[kSquareStretch] = {};
    double padded_sums[kStretchLeaves];
    std::copy_n(stretch, count, padded);
    square_stretch(node, padded, padded_sums);
    std::copy_n(padded_sums, (count + node - 1) / node, sums);
  }
}

template <typename E>
void square_nodes(std::int64_t elements, std::int64_t node, const E* x, double* sums) {
  square_stretches<E>(elements, node, sums, [x](std::int64_t first, std::int64_t) { return x + first; });
}

// A stretch is still in the first cache when it is squared. It is prefetched, as above, before it is rounded (11 GB/s without
// this, 16 with it).
template <typename E>
void round_and_square_nodes(std::int64_t elements, std::int64_t node, const float* x, E* y, double* sums) {
  square_stretches<E>(elements, node, sums, [x, y](std::int64_t first, std::int64_t count) HWY_ATTR {
    for_vectors(count, [&](std::int64_t i, auto part) HWY_ATTR {
      hwy::Prefetch(x + first + i + kAhead);
      store(load(x + first + i, part), y + first + i, part);
    });
    return y + first;
  });
}

template <typename E>
SquareKernels<E> kernels() {
  return {square_nodes<E>, round_and_square_nodes<E>};
}

}  // namespace
SPILLWAY_SIMD_TABLES(SquareKernels, squares);
}  // namespace HWY_NAMESPACE
}  // namespace spillway::ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace spillway::ops {

SPILLWAY_SIMD_DISPATCH(SquareKernels, squares);

template <typename E>
void square_nodes(std::int64_t elements, std::int64_t node, const E* x, double* sums) {
  best<E>().square_nodes(elements, node, x, sums);
}
template <typename E>
void round_and_square_nodes(std::int64_t elements, std::int64_t node, const float* x, E* y, double* sums) {
  best<E>().round_and_square_nodes(elements, node, x, y, sums);
}

#define SPILLWAY_INSTANTIATE(E)                                              \
  template void square_nodes(std::int64_t, std::int64_t, const E*, double*); \
  template void round_and_square_nodes(std::int64_t, std::int64_t, const float*, E*, double*);
SPILLWAY_INSTANTIATE(float)
SPILLWAY_INSTANTIATE(BFloat16)
#undef SPILLWAY_INSTANTIATE

}  // namespace spillway::ops
#endif
