// Rotary positions and the head-wise norm before them, fused: one pass over the rows, a head at a time.
#include "models/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "models/cpu/rope.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "memory/base/error.h"
#include "models/cpu/ops.h"
#include "models/cpu/row_loop-inl.h"
#include "models/cpu/row_reduce-inl.h"
#include "models/cpu/simd-inl.h"
#include "models/cpu/simd_dispatch.h"

#ifndef SPILLWAY_MODELS_CPU_ROPE_TABLE
#define SPILLWAY_MODELS_CPU_ROPE_TABLE
namespace spillway::ops {
// One instruction set's kernels.
template <typename E>
struct RopeKernels {
  decltype(&ops::rope_forward<E>) rope_forward;
  decltype(&ops::rope_backward<E>) rope_backward;
};
}  // namespace spillway::ops
#endif

HWY_BEFORE_NAMESPACE();
namespace spillway::ops {
namespace HWY_NAMESPACE {
namespace {

constexpr std::int64_t kTaskRows = 16;

template <typename E>
HWY_INLINE float head_rstd(const E* head, std::int64_t D, float epsilon) {
  const float squares = sum_vectors(D, [&](std::int64_t i, auto part) HWY_ATTR {
    const Float v = load(head + i, part);
    return hn::Mul(v, v);
  });
  return 1.0f / std::sqrt(squares / static_cast<float>(D) + epsilon);
}

template <typename E>
void rope_forward(const ThreadPool& pool, const RopeShape& shape, const RopeTable& table, const HeadNorm<E>& norm, const E* qkv,
                  E* qk) {
  const std::int64_t D = shape.dimension, half = D / 2, rotated = shape.heads + shape.kv_heads;
  const Positions positions{shape.sequence, table.first_key};
  for_rows(pool, shape.n, kTaskRows, [&](std::int64_t row) HWY_ATTR {
    const std::int64_t angles = positions.of(row) * half;
    for (std::int64_t head = 0; head < rotated; ++head) {
      const Angles& of = head < shape.heads ? table.queries : table.keys;
      const float *cosine = of.cosine + angles, *sine = of.sine + angles;
      const E* in = qkv + row * (rotated + shape.kv_heads) * D + head * D;
      E* out = qk + row * rotated * D + head * D;
      const E* weight = head < shape.heads ? norm.q_weight : norm.k_weight;
      const Float rstd = splat(weight == nullptr ? 1.0f : head_rstd(in, D, shape.epsilon)), offset = splat(shape.offset);
      for_vectors(half, [&](std::int64_t i, auto part) HWY_ATTR {
        Float x = load(in + i, part), y = load(in + half + i, part);
        if (weight != nullptr) {
          x = hn::Mul(hn::Add(load(weight + i, part), offset), hn::Mul(x, rstd));
          y = hn::Mul(hn::Add(load(weight + half + i, part), offset), hn::Mul(y, rstd));
        }
        const Float c = load(cosine + i, part), s = load(sine + i, part);
        store(hn::Sub(hn::Mul(x, c), hn::Mul(y, s)), out + i, part);
        store(hn::Add(hn::Mul(y, c), hn::Mul(x, s)), out + half + i, part);
      });
    }
  });
}

// Takes one head's gradient through the norm: g is the gradient of the normed head, (offset + weight) * in * rstd.
template <typename E>
HWY_INLINE void head_norm_backward(const RopeShape& shape, const E* in, const E* weight, const float* g, E* out, float* dweight) {
  const std::int64_t D = shape.dimension;
  const float rstd = head_rstd(in, D, shape.epsilon);
  const Float r = splat(rstd), offset = splat(shape.offset);
  const float dot = sum_vectors(D, [&](std::int64_t i, auto part) HWY_ATTR {
    const Float du = hn::Mul(load(g + i, part), hn::Mul(load(in + i, part), r));
    store(hn::Add(load(dweight + i, part), du), dweight + i, part);
    return hn::Mul(du, hn::Add(load(weight + i, part), offset));
  });
  const Float mean = splat(dot / static_cast<float>(D));
  for_vectors(D, [&](std::int64_t i, auto part) HWY_ATTR {
    const Float u = hn::Mul(load(in + i, part), r);
    const Float scaled = hn::Mul(load(g + i, part), hn::Add(load(weight + i, part), offset));
    store(hn::Mul(r, hn::NegMulAdd(u, mean, scaled)), out + i, part);
  });
}

template <typename E>
void rope_backward(const ThreadPool& pool, const RopeShape& shape, const RopeTable& table, const HeadNorm<E>& norm, const E* qkv,
                   E* dqkv, float* dq_weight, float* dk_weight, Store how, std::byte* scratch) {
  const std::int64_t D = shape.dimension, half = D / 2, rotated = shape.heads + shape.kv_heads;
  const Positions positions{shape.sequence, table.first_key};
  const std::int64_t blocks = row_blocks(shape.n);
  auto* q_partial = reinterpret_cast<float*>(scratch);
  float* k_partial = scratch == nullptr ? nullptr : q_partial + blocks * D;
  pool.parallel_for(blocks, [&](std::int64_t block, int) HWY_ATTR {
    float* dq = q_partial == nullptr ? nullptr : q_partial + block * D;
    float* dk = k_partial == nullptr ? nullptr : k_partial + block * D;
    if (norm.q_weight != nullptr) std::memset(dq, 0, static_cast<std::size_t>(D) * sizeof(float));
    if (norm.k_weight != nullptr) std::memset(dk, 0, static_cast<std::size_t>(D) * sizeof(float));
    float normed[kMaxRotaryHead];
    for (std::int64_t row = block * kBlockRows; row < std::min(shape.n, (block + 1) * kBlockRows); ++row) {
      const std::int64_t angles = positions.of(row) * half;
      const std::int64_t at = row * (rotated + shape.kv_heads) * D;
      for (std::int64_t head = 0; head < rotated; ++head) {
        const Angles& of = head < shape.heads ? table.queries : table.keys;
        const float *cosine = of.cosine + angles, *sine = of.sine + angles;
        E* d = dqkv + at + head * D;
        const E* weight = head < shape.heads ? norm.q_weight : norm.k_weight;
        const auto turn_back = [&](auto* to) HWY_ATTR {
          for_vectors(half, [&](std::int64_t i, auto part) HWY_ATTR {
            const Float x = load(d + i, part), y = load(d + half + i, part);
            const Float c = load(cosine + i, part), s = load(sine + i, part);
            store(hn::Add(hn::Mul(x, c), hn::Mul(y, s)), to + i, part);
            store(hn::Sub(hn::Mul(y, c), hn::Mul(x, s)), to + half + i, part);
          });
        };
        if (weight == nullptr) {
          turn_back(d);
        } else {
          turn_back(normed);
          head_norm_backward(shape, qkv + at + head * D, weight, normed, d, head < shape.heads ? dq : dk);
        }
      }
    }
  });
  if (dq_weight != nullptr) reduce_blocks(pool, blocks, D, q_partial, dq_weight, how);
  if (dk_weight != nullptr) reduce_blocks(pool, blocks, D, k_partial, dk_weight, how);
}

template <typename E>
RopeKernels<E> kernels() {
  return {rope_forward<E>, rope_backward<E>};
}

}  // namespace
SPILLWAY_SIMD_TABLES(RopeKernels, rope);
}  // namespace HWY_NAMESPACE
}  // namespace spillway::ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace spillway::ops {

SPILLWAY_SIMD_DISPATCH(RopeKernels, rope);

namespace {
void check(const RopeShape& shape) {
  SPILLWAY_CHECK(shape.dimension > 0 && shape.dimension % 2 == 0 && shape.dimension <= kMaxRotaryHead,
                 "rotary positions take even head dimensions up to {}, not {}", kMaxRotaryHead, shape.dimension);
  SPILLWAY_CHECK(shape.sequence > 0, "a sequence of {} tokens", shape.sequence);
}
}  // namespace

Bytes rope_backward_scratch_bytes(const RopeShape& shape) { return 2 * partial_sums_bytes(shape.n, shape.dimension); }

template <typename E>
void rope_forward(const ThreadPool& pool, const RopeShape& shape, const RopeTable& table, const HeadNorm<E>& norm, const E* qkv,
                  E* qk) {
  check(shape);
  best<E>().rope_forward(pool, shape, table, norm, qkv, qk);
}
template <typename E>
void rope_backward(const ThreadPool& pool, const RopeShape& shape, const RopeTable& table, const HeadNorm<E>& norm, const E* qkv,
                   E* dqkv, float* dq_weight, float* dk_weight, Store how, std::byte* scratch) {
  check(shape);
  best<E>().rope_backward(pool, shape, table, norm, qkv, dqkv, dq_weight, dk_weight, how, scratch);
}

#define SPILLWAY_INSTANTIATE(E)                                                                                                \
  template void rope_forward(const ThreadPool&, const RopeShape&, const RopeTable&, const HeadNorm<E>&, const E*, E*);         \
  template void rope_backward(const ThreadPool&, const RopeShape&, const RopeTable&, const HeadNorm<E>&, const E*, E*, float*, \
                              float*, Store, std::byte*);
SPILLWAY_INSTANTIATE(float)
SPILLWAY_INSTANTIATE(BFloat16)
#undef SPILLWAY_INSTANTIATE

}  // namespace spillway::ops
#endif
