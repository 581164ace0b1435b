// Sums of squares over nodes of a block's tree (memory/square_tree.h), in double, the host's bits exactly; and the norm.
// Where a gradient waits for its update in bf16, it is rounded on the way, and the sums are those of its rounding.
#pragma once

#include <cmath>
#include <cstdint>

#include "memory/square_tree.h"
#include "models/cuda/vectors.cuh"

namespace spillway::cuda {

// Elements of a block that count; what lies between counts as zeros, whatever it holds.
struct CountedRange {
  std::int64_t begin = 0, end = 0;
};

// sums[i] of the i-th `node` elements of [begin, begin + elements), a power of two from kSquareLeaf to kSquareStretch. A warp has
// a stretch, a lane two of its leaves: four running sums a leaf, then pairs of a tree, in the order in which the host adds them.
template <bool rounds>
struct SquareNodes {
  static constexpr int kThreads = 256, kWarps = kThreads / 32;
  std::int64_t elements = 0, node = kSquareStretch;
  const float* gradient = nullptr;       // from the first element on
  BFloat16* rounded = nullptr;           // the same, where they are rounded
  double* sums = nullptr;                // [ceil(elements / node)]
  std::int64_t first = 0;                // of the elements, in their block
  const CountedRange* ranges = nullptr;  // of the block, by their begin; null: all count
  int range_count = 0;

  SPILLWAY_GPU void operator()(const Gpu& gpu) const {
    const std::int64_t stretch = (gpu.block() * kWarps + gpu.warp()) * kSquareStretch;
    if (stretch >= elements) return;
    double sum[2];
    SPILLWAY_UNROLL
    for (int leaf = 0; leaf < 2; ++leaf) {
      const std::int64_t begin = stretch + (gpu.lane() * 2 + leaf) * kSquareLeaf;
      sum[leaf] = square_leaf(gpu, begin);
      put(gpu, kSquareLeaf, begin, sum[leaf]);
    }
    const std::int64_t begin = stretch + gpu.lane() * 2 * kSquareLeaf;
    double total = sum[0] + sum[1];
    put(gpu, 2 * kSquareLeaf, begin, total);
    for (int mask = 1; mask < 32; mask *= 2) {
      total += gpu.shuffle_xor(total, mask);
      if (gpu.lane() % (2 * mask) == 0) put(gpu, std::int64_t{4} * mask * kSquareLeaf, begin, total);
    }
  }

 private:
  SPILLWAY_GPU bool counts(const Gpu& gpu, std::int64_t element) const {
    if (element >= elements) return false;
    bool found = ranges == nullptr;
    for (int i = 0; i < range_count && !found; ++i) {
      const CountedRange range = gpu.load(reinterpret_cast<const Pack<CountedRange, 1>*>(ranges + i)).x[0];
      found = range.begin <= first + element && first + element < range.end;
    }
    return found;
  }
  SPILLWAY_GPU double square_leaf(const Gpu& gpu, std::int64_t begin) const {
    double running[4] = {};
    SPILLWAY_UNROLL
    for (int i = 0; i < kSquareLeaf; ++i) {
      if (!counts(gpu, begin + i)) continue;
      float x = gpu.load(gradient + begin + i);
      if constexpr (rounds) {
        const BFloat16 half = BFloat16::from_float(x);
        gpu.store(rounded + begin + i, half);
        x = half.to_float();
      }
      running[i % 4] += static_cast<double>(x) * static_cast<double>(x);  // exact: fused or not
    }
    return (running[0] + running[1]) + (running[2] + running[3]);
  }
  SPILLWAY_GPU void put(const Gpu& gpu, std::int64_t of, std::int64_t begin, double sum) const {
    if (of == node && begin < elements) gpu.store(sums + begin / node, sum);
  }
};

// The same of nodes of 2^k stretches from the sums of these: pairs of the tree. A thread has a node.
struct JoinNodes {
  static constexpr int kThreads = 256;
  std::int64_t nodes = 0, stretches = 1;  // of a node, at most 64
  const double* of_stretches = nullptr;
  double* sums = nullptr;

  SPILLWAY_GPU void operator()(const Gpu& gpu) const {
    const std::int64_t node = gpu.block() * kThreads + gpu.thread();
    if (node >= nodes) return;
    // A binary counter: what is carried are sums of whole subtrees.
    double open[8];
    for (std::int64_t i = 0; i < stretches; ++i) {
      double sum = gpu.load(of_stretches + node * stretches + i);
      int level = 0;
      for (std::int64_t bits = i; bits % 2 == 1; bits /= 2, ++level) sum = level_of(open, level) + sum;
      set_level(open, level, sum);
    }
    int top = 0;
    for (std::int64_t left = stretches; left > 1; left /= 2) ++top;
    gpu.store(sums + node, level_of(open, top));
  }

 private:
  // Without an index that only the run knows: they stay in registers.
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

// sqrt of the sum over blocks, one after the other, and the clip factor, as PyTorch's clip_grad_norm_ has it in fp32. One thread.
struct NormOfBlocks {
  static constexpr int kThreads = 32;
  int blocks = 0;
  float clip = 0;                // 0: none
  const double* sums = nullptr;  // [blocks]
  double* norm_and_factor = nullptr;

  SPILLWAY_GPU void operator()(const Gpu& gpu) const {
    if (gpu.thread() != 0) return;
    double sum = 0;
    for (int block = 0; block < blocks; ++block) sum += gpu.load(sums + block);
    const double norm = sqrt(sum);
    const float scale = Gpu::divide(clip, Gpu::add(static_cast<float>(norm), 1e-6f));
    gpu.store(norm_and_factor, norm);
    gpu.store(norm_and_factor + 1, clip > 0 ? static_cast<double>(scale < 1.0f ? scale : 1.0f) : 1.0);
  }
};

}  // namespace spillway::cuda
