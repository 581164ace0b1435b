// Sums of squares over nodes of a block's tree (memory/plan/square_tree.h), in double, with exactly the host's bits; and the
// norm. A gradient that waits for its update in bf16 is rounded on the way, and the sums are those of the rounded gradient.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "memory/plan/square_tree.h"
#include "models/cuda/vectors.cuh"

namespace spillway::cuda {

// A range of a block's elements that count. Elements between ranges count as zeros, whatever they hold.
struct CountedRange {
  std::int64_t begin = 0, end = 0;
};

// Transposes the four rows of four numbers of lanes 4 i to 4 i + 3: lane 4 i + k gets column k.
SPILLWAY_GPU void transpose_fours(const Gpu& gpu, float (&x)[4]) {
  SPILLWAY_UNROLL
  for (int mask = 1; mask <= 2; mask *= 2) {
    const bool is_upper = (gpu.lane() & mask) != 0;
    SPILLWAY_UNROLL
    for (int i = 0; i < 2; ++i) {
      const int low = mask == 1 ? 2 * i : i, high = low + mask;
      const float got = gpu.shuffle_xor(is_upper ? x[low] : x[high], mask);
      x[low] = is_upper ? got : x[low], x[high] = is_upper ? x[high] : got;
    }
  }
}

// A warp sums the nodes of a stretch. pack_of(i) gives numbers 4 i to 4 i + 3 of the stretch; put(first, sum) takes a node's sum,
// `first` being the place of its first number in the stretch. Four lanes have a leaf and add it in the host's order: four running
// sums, then these by pairs; then follow pairs of the tree.
template <typename PackOf, typename Put>
SPILLWAY_GPU void square_stretch(const Gpu& gpu, std::int64_t node, const PackOf& pack_of, const Put& put) {
  constexpr int kPacks = static_cast<int>(kSquareStretch) / (4 * 32);
  static_assert(kSquareLeaf == 16);
  double mine = 0;  // sum of the 128 numbers of this lane's turn
  SPILLWAY_NO_UNROLL
  for (int p = 0; p < kPacks; ++p) {
    Floats<4> pack = pack_of(p * 32 + gpu.lane());
    transpose_fours(gpu, pack.x);
    double sum = 0;
    for (int i = 0; i < 4; ++i) sum += static_cast<double>(pack.x[i]) * static_cast<double>(pack.x[i]);  // exact: fused or not
    SPILLWAY_UNROLL
    for (int mask = 1; mask < 32; mask *= 2) {
      sum += gpu.shuffle_xor(sum, mask);
      const int of_node = 8 * mask;  // numbers in the sum, once the lanes of a leaf are joined
      if (of_node == node && of_node >= kSquareLeaf && gpu.lane() % (2 * mask) == 0) put((p * 32 + gpu.lane()) * 4, sum);
    }
    mine = p == gpu.lane() ? sum : mine;
  }
  SPILLWAY_UNROLL
  for (int mask = 1; mask < kPacks; mask *= 2) {
    mine += gpu.shuffle_xor(mine, mask);
    if (gpu.lane() % (2 * mask) == 0 && gpu.lane() < kPacks && 256 * mask == node) put(gpu.lane() * 128, mine);
  }
}

// Tells which elements of a block count.
class Counting {
 public:
  SPILLWAY_GPU Counting(const CountedRange* ranges, int count) : ranges_(ranges), count_(count) {}
  // True when all elements of [begin, end) count.
  SPILLWAY_GPU bool all(const Gpu& gpu, std::int64_t begin, std::int64_t end) const {
    bool found = ranges_ == nullptr;
    for (int i = 0; i < count_ && !found; ++i) {
      const CountedRange range = gpu.load(reinterpret_cast<const Pack<CountedRange, 1>*>(ranges_ + i)).x[0];
      found = range.begin <= begin && end <= range.end;
    }
    return found;
  }

 private:
  const CountedRange* ranges_;
  int count_;
};

// The kernel that sets sums[i] to the sum of squares of the i-th `node` elements; `node` is a power of two from kSquareLeaf to
// kSquareStretch. A warp has a stretch. `vectors`: the arrays are aligned for packs of four.
template <bool rounds, bool vectors>
struct SquareNodes {
  static constexpr int kThreads = 256, kWarps = kThreads / 32;
  std::int64_t elements = 0, node = kSquareStretch;
  const float* gradient = nullptr;       // from the first element on
  BFloat16* rounded = nullptr;           // the same, where the gradient is rounded
  double* sums = nullptr;                // [ceil(elements / node)]
  std::int64_t first = 0;                // index in the block of the first element
  const CountedRange* ranges = nullptr;  // the block's ranges, by their begin; null: all elements count
  int range_count = 0;

  SPILLWAY_GPU void operator()(const Gpu& gpu) const {
    const std::int64_t stretch = (gpu.block() * kWarps + gpu.warp()) * kSquareStretch;
    if (stretch >= elements) return;  // the same for all lanes of the warp
    const Counting counting(ranges, range_count);
    const bool is_whole =
        stretch + kSquareStretch <= elements && counting.all(gpu, first + stretch, first + stretch + kSquareStretch);
    square_stretch(
        gpu, node,
        [&](int pack) {
          const std::int64_t begin = stretch + pack * 4;
          return is_whole && vectors ? whole_pack(gpu, begin) : parts_of_pack(gpu, begin, counting);
        },
        [&](std::int64_t begin, double sum) {
          if (stretch + begin < elements) gpu.store(sums + (stretch + begin) / node, sum);
        });
  }

 private:
  SPILLWAY_GPU Floats<4> whole_pack(const Gpu& gpu, std::int64_t begin) const {
    auto pack = load_floats<float, 4>(gpu, gradient + begin);
    if constexpr (rounds) {
      for (int i = 0; i < 4; ++i) pack.x[i] = to_float(BFloat16::from_float(pack.x[i]));
      store_floats<BFloat16, 4>(gpu, rounded + begin, pack);
    }
    return pack;
  }
  SPILLWAY_GPU Floats<4> parts_of_pack(const Gpu& gpu, std::int64_t begin, const Counting& counting) const {
    Floats<4> pack{};
    for (int i = 0; i < 4; ++i) {
      const std::int64_t at = begin + i;
      if (at >= elements || !counting.all(gpu, first + at, first + at + 1)) continue;
      pack.x[i] = gpu.load(gradient + at);
      if constexpr (rounds) {
        const BFloat16 half = BFloat16::from_float(pack.x[i]);
        gpu.store(rounded + at, half);
        pack.x[i] = half.to_float();
      }
    }
    return pack;
  }
};

// Enqueues the kernel, with vectors where the arrays are aligned for them.
template <bool rounds>
void device_squares(Queue& queue, const SquareNodes<rounds, true>& of) {
  if (of.elements == 0) return;
  const auto address = reinterpret_cast<std::uintptr_t>(of.gradient), other = reinterpret_cast<std::uintptr_t>(of.rounded);
  const std::int64_t each = of.kWarps * kSquareStretch, blocks = (of.elements + each - 1) / each;
  if (address % 16 == 0 && other % 8 == 0) {
    launch(queue, {blocks}, of);
  } else {
    launch(
        queue, {blocks},
        SquareNodes<rounds, false>{of.elements, of.node, of.gradient, of.rounded, of.sums, of.first, of.ranges, of.range_count});
  }
}

// The kernel that sums nodes of 2^k stretches from the stretches' sums, by pairs of the tree. A thread has a node. Stretches that
// the last node lacks count as zeros, which change no sum.
struct JoinNodes {
  static constexpr int kThreads = 256, kMost = 64;
  std::int64_t count = 0, stretches = 1;  // stretches in all; stretches of a node, at most kMost
  const double* of_stretches = nullptr;
  double* sums = nullptr;

  SPILLWAY_GPU void operator()(const Gpu& gpu) const {
    const std::int64_t node = gpu.block() * kThreads + gpu.thread();
    if (node * stretches >= count) return;
    // A binary counter that carries sums of whole subtrees.
    double open[8];
    for (std::int64_t i = 0; i < stretches; ++i) {
      const std::int64_t at = node * stretches + i;
      double sum = at < count ? gpu.load(of_stretches + at) : 0.0;
      int level = 0;
      for (std::int64_t bits = i; bits % 2 == 1; bits /= 2, ++level) sum = level_of(open, level) + sum;
      set_level(open, level, sum);
    }
    int top = 0;
    for (std::int64_t left = stretches; left > 1; left /= 2) ++top;
    gpu.store(sums + node, level_of(open, top));
  }

 private:
  // No index is known only at run time, so that the sums stay in registers.
  static SPILLWAY_GPU double level_of(const double (&open)[8], int level) {
    double found = 0;
    SPILLWAY_UNROLL
    for (int i = 0; i < 8; ++i) found = i == level ? open[i] : found;
    return found;
  }
  static SPILLWAY_GPU void set_level(double (&open)[8], int level, double sum) {
    SPILLWAY_UNROLL
    for (int i = 0; i < 8; ++i) open[i] = i == level ? sum : open[i];
  }
};

// Enqueues the sum of a block from the sums of all its nodes of one size, where nodes without elements have a zero: it equals
// sum_of_nodes() (memory/plan/square_tree.h). `space` has room for scratch_of_sum(count) doubles.
inline std::int64_t scratch_of_sum(std::int64_t count) {
  std::int64_t doubles = 0;
  for (; count > JoinNodes::kMost; doubles += count) count = (count + JoinNodes::kMost - 1) / JoinNodes::kMost;
  return doubles;
}
inline void device_sum_of_nodes(Queue& queue, std::int64_t count, const double* nodes, double* space, double* sum) {
  for (bool is_last = false; !is_last;) {
    const std::int64_t joined = (count + JoinNodes::kMost - 1) / JoinNodes::kMost;
    is_last = joined <= 1;
    launch(queue, {std::max<std::int64_t>(1, (joined + JoinNodes::kThreads - 1) / JoinNodes::kThreads)},
           JoinNodes{count, JoinNodes::kMost, nodes, is_last ? sum : space});
    count = joined, nodes = space, space += joined;
  }
}

// sqrt of the sum over blocks, one after the other, over the loss scale, and the clip factor of PyTorch's clip_grad_norm_, in
// fp32. One thread does it.
struct NormOfBlocks {
  static constexpr int kThreads = 32;
  int blocks = 0;
  float clip = 0;                // 0: no clipping
  const double* sums = nullptr;  // [blocks]
  double* norm_and_factor = nullptr;
  double loss_scale = 1;

  SPILLWAY_GPU void operator()(const Gpu& gpu) const {
    if (gpu.thread() != 0) return;
    double sum = 0;
    for (int block = 0; block < blocks; ++block) sum += gpu.load(sums + block);
    const double norm = sqrt(sum) / loss_scale;
    const float scale = Gpu::divide(clip, Gpu::add(static_cast<float>(norm), 1e-6f));
    gpu.store(norm_and_factor, norm);
    gpu.store(norm_and_factor + 1, clip > 0 ? static_cast<double>(scale < 1.0f ? scale : 1.0f) : 1.0);
  }
};

}  // namespace spillway::cuda
