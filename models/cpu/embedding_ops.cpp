// Embedding: rows gathered from a vocabulary tile, and their gradients added back in the order of the tokens.
#include "models/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "models/cpu/embedding_ops.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>

#include "models/cpu/ops.h"
#include "models/cpu/row_loop-inl.h"
#include "models/cpu/simd-inl.h"
#include "models/cpu/simd_dispatch.h"

#ifndef SPILLWAY_MODELS_CPU_EMBEDDING_TABLE
#define SPILLWAY_MODELS_CPU_EMBEDDING_TABLE
namespace spillway::ops {
// One instruction set's kernels.
template <typename E>
struct EmbeddingKernels {
  void (*scale_row)(std::int64_t H, float factor, const E* row, E* x);
  decltype(&ops::position_forward<E>) position_forward;
  decltype(&ops::embedding_backward<E>) embedding_backward;
  decltype(&ops::position_backward<E>) position_backward;
};
}  // namespace spillway::ops
#endif

HWY_BEFORE_NAMESPACE();
namespace spillway::ops {
namespace HWY_NAMESPACE {
namespace {

template <typename E, typename Sum>
HWY_INLINE void add_row(std::int64_t count, const E* x, Sum* sum) {
  for_vectors(count,
              [&](std::int64_t i, auto part) HWY_ATTR { store(hn::Add(load(sum + i, part), load(x + i, part)), sum + i, part); });
}

template <typename E>
HWY_INLINE void add_scaled_row(std::int64_t count, float factor, const E* x, float* sum) {
  const Float f = splat(factor);
  for_vectors(count, [&](std::int64_t i, auto part)
                         HWY_ATTR { store(hn::Add(load(sum + i, part), hn::Mul(f, load(x + i, part))), sum + i, part); });
}

template <typename E>
void scale_row(std::int64_t H, float factor, const E* row, E* x) {
  const Float f = splat(factor);
  for_vectors(H, [&](std::int64_t i, auto part) HWY_ATTR { store(hn::Mul(f, load(row + i, part)), x + i, part); });
}

template <typename E>
void position_forward(const ThreadPool& pool, std::int64_t n, std::int64_t H, const Positions& positions, const E* table, E* x) {
  constexpr std::int64_t kTaskRows = 16;
  for_rows(pool, n, kTaskRows, [&](std::int64_t row) HWY_ATTR { add_row(H, table + positions.of(row) * H, x + row * H); });
}

// A task owns some columns of the whole tile and takes the tokens in their order. So no two tasks meet, however often a token
// occurs.
template <typename E>
void embedding_backward(const ThreadPool& pool, std::int64_t n, std::int64_t H, const std::int32_t* tokens, VocabularyTile tile,
                        const E* dx, float* dtable, Store how, float factor, std::int64_t padding) {
  constexpr std::int64_t kStrip = 128;
  if (how == Store::write) fill_zero(pool, tile.rows * H * 4, dtable);
  pool.parallel_for((H + kStrip - 1) / kStrip, [&](std::int64_t task, int) HWY_ATTR {
    const std::int64_t first = task * kStrip, count = std::min(kStrip, H - first);
    for (std::int64_t row = 0; row < n; ++row) {
      const std::int64_t at = tokens[row] - tile.first;
      if (at < 0 || at >= tile.rows || tokens[row] == padding) continue;
      const E* from = dx + row * H + first;
      float* to = dtable + at * H + first;
      if (factor == 1.0f) {
        add_row(count, from, to);
      } else {
        add_scaled_row(count, factor, from, to);
      }
    }
  });
}

template <typename E>
void position_backward(const ThreadPool& pool, std::int64_t n, std::int64_t H, const Positions& positions,
                       std::int64_t table_rows, const E* dx, float* dtable, Store how) {
  constexpr std::int64_t kTaskRows = 8;
  const std::int64_t T = positions.sequence;
  for_rows(pool, table_rows, kTaskRows, [&](std::int64_t position) HWY_ATTR {
    float* sum = dtable + position * H;
    if (how == Store::write) std::memset(sum, 0, static_cast<std::size_t>(H) * sizeof(float));
    for (std::int64_t sequence = 0; sequence < n; sequence += T) {
      for (std::int64_t t = position, end = std::min(T, n - sequence); t < end;) {
        const std::int64_t row = sequence + t, begin = t - positions.of(row);
        if (begin + position == t) add_row(H, dx + row * H, sum);
        // The next document that may have a row here is the row's own, or it begins behind the row.
        t = begin + position > t ? begin + position : t + 1 + position;
      }
    }
  });
}

template <typename E>
EmbeddingKernels<E> kernels() {
  return {scale_row<E>, position_forward<E>, embedding_backward<E>, position_backward<E>};
}

}  // namespace
SPILLWAY_SIMD_TABLES(EmbeddingKernels, embedding);
}  // namespace HWY_NAMESPACE
}  // namespace spillway::ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace spillway::ops {

SPILLWAY_SIMD_DISPATCH(EmbeddingKernels, embedding);

template <typename E>
void embedding_forward(const ThreadPool& pool, std::int64_t n, std::int64_t H, const std::int32_t* tokens, VocabularyTile tile,
                       const E* table, E* x, float factor) {
  constexpr std::int64_t kTaskRows = 32;
  const auto scale_row = best<E>().scale_row;
  pool.parallel_for((n + kTaskRows - 1) / kTaskRows, [&](std::int64_t task, int) {
    for (std::int64_t row = task * kTaskRows; row < std::min(n, (task + 1) * kTaskRows); ++row) {
      const std::int64_t at = tokens[row] - tile.first;
      if (at < 0 || at >= tile.rows) continue;
      if (factor == 1.0f) {
        std::memcpy(x + row * H, table + at * H, static_cast<std::size_t>(H) * sizeof(E));
      } else {
        scale_row(H, factor, table + at * H, x + row * H);
      }
    }
  });
}
template <typename E>
void position_forward(const ThreadPool& pool, std::int64_t n, std::int64_t H, const Positions& positions, const E* table, E* x) {
  best<E>().position_forward(pool, n, H, positions, table, x);
}
template <typename E>
void embedding_backward(const ThreadPool& pool, std::int64_t n, std::int64_t H, const std::int32_t* tokens, VocabularyTile tile,
                        const E* dx, float* dtable, Store how, float factor, std::int64_t padding) {
  best<E>().embedding_backward(pool, n, H, tokens, tile, dx, dtable, how, factor, padding);
}
template <typename E>
void position_backward(const ThreadPool& pool, std::int64_t n, std::int64_t H, const Positions& positions,
                       std::int64_t table_rows, const E* dx, float* dtable, Store how) {
  best<E>().position_backward(pool, n, H, positions, table_rows, dx, dtable, how);
}

#define SPILLWAY_INSTANTIATE(E)                                                                                                  \
  template void embedding_forward(const ThreadPool&, std::int64_t, std::int64_t, const std::int32_t*, VocabularyTile, const E*,  \
                                  E*, float);                                                                                    \
  template void position_forward(const ThreadPool&, std::int64_t, std::int64_t, const Positions&, const E*, E*);                 \
  template void embedding_backward(const ThreadPool&, std::int64_t, std::int64_t, const std::int32_t*, VocabularyTile, const E*, \
                                   float*, Store, float, std::int64_t);                                                          \
  template void position_backward(const ThreadPool&, std::int64_t, std::int64_t, const Positions&, std::int64_t, const E*,       \
                                  float*, Store);
SPILLWAY_INSTANTIATE(float)
SPILLWAY_INSTANTIATE(BFloat16)
#undef SPILLWAY_INSTANTIATE

}  // namespace spillway::ops
#endif
