// Attention of one query to cached keys and values. A task is one key/value head and a stretch of its keys; the results of a
// head's stretches are joined in their order.
#include "models/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "models/cpu/attention/attention_decode.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>

#include "memory/base/error.h"
#include "models/cpu/attention/attention_ops.h"
#include "models/cpu/simd-inl.h"
#include "models/cpu/simd_dispatch.h"

#ifndef SPILLWAY_MODELS_CPU_ATTENTION_DECODE_TABLE
#define SPILLWAY_MODELS_CPU_ATTENTION_DECODE_TABLE
namespace spillway::ops {
inline constexpr std::int64_t kStretch = 512;  // keys a task

// One head's query against a stretch of keys: the weighted sum of the values, relative to the largest score.
template <typename E>
struct DecodeTask {
  const float* q;   // [D], scaled
  const E* keys;    // [count], `stride` elements apart
  const E* values;  // likewise
  std::int64_t stride;
  std::int64_t count;  // 1 to kStretch
  std::int64_t head_dim;
  float softcap;   // 0: none
  float* o;        // [D]
  float* maximum;  // of the scores
  float* sum;      // of exp(score - maximum)
};

// One instruction set's kernel.
template <typename E>
struct DecodeKernels {
  void (*attend)(const DecodeTask<E>& task);
};
}  // namespace spillway::ops
#endif

HWY_BEFORE_NAMESPACE();
namespace spillway::ops {
namespace HWY_NAMESPACE {
namespace {

// Caps the scores and returns the cap of their maximum. That is the largest of them, because tanh never falls.
HWY_INLINE float cap_scores(std::int64_t count, float softcap, float maximum, float* scores) {
  const Float cap = splat(softcap), inverse = splat(1.0f / softcap);
  for_vectors(count,
              [&](std::int64_t i, auto part) HWY_ATTR { store(capped(load(scores + i, part), cap, inverse), scores + i, part); });
  return hn::GetLane(capped(splat(maximum), cap, inverse));
}

template <typename E>
void attend(const DecodeTask<E>& task) {
  HWY_ALIGN float weights[kStretch];
  const std::int64_t D = task.head_dim;
  float maximum = -1e30f;
  for (std::int64_t key = 0; key < task.count; ++key) {
    const E* k = task.keys + key * task.stride;
    weights[key] =
        sum_vectors(D, [&](std::int64_t i, auto part) HWY_ATTR { return hn::Mul(load(task.q + i, part), load(k + i, part)); });
    maximum = std::max(maximum, weights[key]);
  }
  if (task.softcap != 0) maximum = cap_scores(task.count, task.softcap, maximum, weights);
  const Float highest = splat(maximum);
  float sum = sum_vectors(task.count, [&](std::int64_t i, auto part) HWY_ATTR {
    const Float weight = masked(exp(hn::Sub(load(weights + i, part), highest)), part);
    store(weight, weights + i, part);
    return weight;
  });
  std::fill_n(task.o, D, 0.0f);
  std::int64_t key = 0;
  for (; key + 4 <= task.count; key += 4) {
    const E* v = task.values + key * task.stride;
    const Float w_0 = splat(weights[key]), w_1 = splat(weights[key + 1]), w_2 = splat(weights[key + 2]),
                w_3 = splat(weights[key + 3]);
    for_vectors(D, [&](std::int64_t i, auto part) HWY_ATTR {
      Float o = hn::MulAdd(w_0, load(v + i, part), load(task.o + i, part));
      o = hn::MulAdd(w_1, load(v + task.stride + i, part), o);
      o = hn::MulAdd(w_2, load(v + 2 * task.stride + i, part), o);
      store(hn::MulAdd(w_3, load(v + 3 * task.stride + i, part), o), task.o + i, part);
    });
  }
  for (; key < task.count; ++key) {
    const E* v = task.values + key * task.stride;
    const Float weight = splat(weights[key]);
    for_vectors(D, [&](std::int64_t i, auto part)
                       HWY_ATTR { store(hn::MulAdd(weight, load(v + i, part), load(task.o + i, part)), task.o + i, part); });
  }
  *task.maximum = maximum;
  *task.sum = sum;
}

template <typename E>
DecodeKernels<E> kernels() {
  return {attend<E>};
}

}  // namespace
SPILLWAY_SIMD_TABLES(DecodeKernels, attention_decode);
}  // namespace HWY_NAMESPACE
}  // namespace spillway::ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace spillway::ops {

SPILLWAY_SIMD_DISPATCH(DecodeKernels, attention_decode);

namespace {

std::int64_t first_key(const AttentionShape& shape) {
  return shape.window == 0 ? 0 : std::max<std::int64_t>(0, shape.keys - shape.window);
}
std::int64_t stretches(const AttentionShape& shape) { return (shape.keys - first_key(shape) + kStretch - 1) / kStretch; }

// Scratch: queries [Hq, D], then of each stretch o [stretches, Hq, D], maxima and sums [stretches, Hq].
struct DecodeScratch {
  DecodeScratch(const AttentionShape& shape, std::byte* base)
      : queries(reinterpret_cast<float*>(base)),
        o(queries + shape.heads * shape.head_dim),
        maxima(o + stretches(shape) * shape.heads * shape.head_dim),
        sums(maxima + stretches(shape) * shape.heads) {}
  float* queries;
  float* o;
  float* maxima;
  float* sums;
};

}  // namespace

Bytes attention_decode_scratch_bytes(const AttentionShape& shape) {
  const std::int64_t floats = shape.heads * (shape.head_dim + stretches(shape) * (shape.head_dim + 2));
  return round_up(floats * static_cast<Bytes>(sizeof(float)), 64);
}

template <typename E>
void attention_decode(const ThreadPool& pool, const AttentionShape& s, const AttentionInputs<E>& in, E* out, float* lse,
                      std::byte* base) {
  SPILLWAY_CHECK(s.sequences == 1 && s.queries == 1 && s.key_offset + 1 == s.keys && s.heads % s.kv_heads == 0,
                 "{} sequences of {} queries at {} of {} keys, {} heads ({} of keys)", s.sequences, s.queries, s.key_offset,
                 s.keys, s.heads, s.kv_heads);
  SPILLWAY_CHECK(s.softcap >= 0 && std::isfinite(s.softcap), "scores capped at {}", s.softcap);
  const std::int64_t D = s.head_dim, group = s.heads / s.kv_heads, first = first_key(s), count = stretches(s);
  const DecodeScratch scratch(s, base);
  for (std::int64_t i = 0; i < s.heads * D; ++i) scratch.queries[i] = to_float(in.q.data[i]) * s.scale;
  const auto attend = best<E>().attend;
  pool.parallel_for(s.kv_heads * count, [&](std::int64_t index, int) {
    const std::int64_t stretch = index % count, kv = index / count, begin = first + stretch * kStretch;
    // The heads of a group come one after the other, so that the keys stay in the cache.
    for (std::int64_t head = kv * group; head < (kv + 1) * group; ++head) {
      const std::int64_t at = stretch * s.heads + head;
      attend({.q = scratch.queries + head * D,
              .keys = in.k.data + begin * in.k.stride + kv * D,
              .values = in.v.data + begin * in.v.stride + kv * D,
              .stride = in.k.stride,
              .count = std::min(kStretch, s.keys - begin),
              .head_dim = D,
              .softcap = s.softcap,
              .o = scratch.o + at * D,
              .maximum = scratch.maxima + at,
              .sum = scratch.sums + at});
    }
  });
  for (std::int64_t head = 0; head < s.heads; ++head) {
    float maximum = scratch.maxima[head];
    for (std::int64_t i = 1; i < count; ++i) maximum = std::max(maximum, scratch.maxima[i * s.heads + head]);
    float sum = 0;
    float* o = scratch.queries + head * D;  // the queries are no longer needed
    std::fill_n(o, D, 0.0f);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t at = i * s.heads + head;
      const float factor = std::exp(scratch.maxima[at] - maximum);
      sum += factor * scratch.sums[at];
      for (std::int64_t d = 0; d < D; ++d) o[d] += factor * scratch.o[at * D + d];
    }
    for (std::int64_t d = 0; d < D; ++d) out[head * D + d] = from_float<E>(o[d] / sum);
    if (lse != nullptr) lse[head] = maximum + std::log(sum);
  }
}

template void attention_decode(const ThreadPool&, const AttentionShape&, const AttentionInputs<float>&, float*, float*,
                               std::byte*);
template void attention_decode(const ThreadPool&, const AttentionShape&, const AttentionInputs<BFloat16>&, BFloat16*, float*,
                               std::byte*);

}  // namespace spillway::ops
#endif
