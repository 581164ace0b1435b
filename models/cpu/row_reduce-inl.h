// Sums over rows, per column, for one instruction set: blocks of rows in parallel, then their partial sums along the fixed tree.
// Not here: the terms (norm.cpp, rope.cpp, reduce.cpp).
#if defined(SPILLWAY_MODELS_CPU_ROW_REDUCE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef SPILLWAY_MODELS_CPU_ROW_REDUCE_INL_H
#undef SPILLWAY_MODELS_CPU_ROW_REDUCE_INL_H
#else
#define SPILLWAY_MODELS_CPU_ROW_REDUCE_INL_H
#endif

#include <algorithm>

#include "models/cpu/fixed_tree.h"
#include "models/cpu/ops.h"
#include "models/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace spillway::ops {
namespace HWY_NAMESPACE {

// sums[columns] (=|+=) the blocks' partial sums[blocks,columns], which are destroyed.
inline void reduce_blocks(const ThreadPool& pool, std::int64_t blocks, std::int64_t columns, float* partial, float* sums,
                          Store how) {
  constexpr std::int64_t kStrip = 256;
  pool.parallel_for((columns + kStrip - 1) / kStrip, [&](std::int64_t task, int) HWY_ATTR {
    const std::int64_t first = task * kStrip, count = std::min(kStrip, columns - first);
    along_tree(blocks, [&](std::int64_t to, std::int64_t from) HWY_ATTR {
      float* x = partial + to * columns + first;
      const float* y = partial + from * columns + first;
      for_vectors(count,
                  [&](std::int64_t i, auto part) HWY_ATTR { store(hn::Add(load(x + i, part), load(y + i, part)), x + i, part); });
    });
    float* out = sums + first;
    for_vectors(count, [&](std::int64_t i, auto part) HWY_ATTR {
      const Float sum = load(partial + first + i, part);
      store(how == Store::add ? hn::Add(load(out + i, part), sum) : sum, out + i, part);
    });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace spillway::ops
HWY_AFTER_NAMESPACE();

#endif
