// Sums of squares where ranks have parts of blocks: the nodes of which a rank's part consists, and a block's sum from the nodes
// of all ranks. Bits are those of memory/plan/square_tree.h. Not here: the squares of stretches (squares.cuh).
#pragma once

#include <algorithm>
#include <cstdint>

#include "memory/plan/square_tree.h"
#include "models/cuda/vectors.cuh"

namespace spillway::cuda {

// Sets sums[i] to the sum of the i-th node of stretches [begin, end) of a block, the nodes of SquareCut(begin, end) in stretches.
// A block of threads has a node.
struct JoinPart {
  static constexpr int kThreads = 256;
  std::int64_t begin = 0, end = 0;
  const double* of_stretches = nullptr;  // from stretch `begin` on
  double* sums = nullptr;

  SPILLWAY_GPU void operator()(const Gpu& gpu) const {
    std::int64_t node = begin, stretches = elements_at(begin);
    for (std::int64_t place = 0; place < gpu.block(); ++place) node += stretches, stretches = elements_at(node);
    const std::int64_t of_thread = stretches > kThreads ? stretches / kThreads : 1;
    const auto threads = static_cast<int>(stretches / of_thread);
    const auto sums_of_threads = gpu.shared<double>();
    if (gpu.thread() < threads)
      gpu.store(sums_of_threads + gpu.thread(), sum_of(gpu, node - begin + gpu.thread() * of_thread, of_thread));
    gpu.sync();
    for (int half = 1; half < threads; half *= 2) {
      const bool joins = gpu.thread() < threads && gpu.thread() % (2 * half) == 0;
      if (joins) {
        const double left = gpu.load(sums_of_threads + gpu.thread()), right = gpu.load(sums_of_threads + gpu.thread() + half);
        gpu.store(sums_of_threads + gpu.thread(), left + right);
      }
      gpu.sync();
    }
    if (gpu.thread() == 0) gpu.store(sums + gpu.block(), gpu.load(sums_of_threads));
  }

 private:
  // Stretches of the node that begins there: the largest aligned power of two that fits.
  SPILLWAY_GPU std::int64_t elements_at(std::int64_t at) const {
    std::int64_t fits = 1;
    while (fits * 2 <= end - at && (at & fits) == 0) fits *= 2;
    return fits;
  }
  // The sum of an aligned power of two of stretches, along the tree.
  SPILLWAY_GPU double sum_of(const Gpu& gpu, std::int64_t first, std::int64_t count) const {
    constexpr int kLevels = 20;  // more than any block needs: its stretches are shared by the threads
    double open[kLevels];
    double sum = 0;
    SPILLWAY_NO_UNROLL
    for (std::int64_t i = 0; i < count; ++i) {
      sum = gpu.load(of_stretches + first + i);
      bool carries = true;
      SPILLWAY_UNROLL
      for (int level = 0; level < kLevels; ++level) {
        if (!carries) continue;
        if ((i >> level) % 2 == 1) {
          sum = open[level] + sum;
        } else {
          open[level] = sum, carries = false;
        }
      }
    }
    return sum;
  }
};

// A word of Plan::norm_buffer or of Plan::ranks_norm_buffer to push, and how many sums of the two topmost numbers follow.
struct SumStep {
  std::int32_t word = 0, joins = 0;
};

// Sets sums[block] to what the block's steps leave. A thread has a block, whose stack is `depth` doubles.
struct SumOfWords {
  static constexpr int kThreads = 64;
  int blocks = 0, depth = 0;
  const std::int32_t* begin = nullptr;  // [blocks + 1] of each block's steps
  const SumStep* steps = nullptr;
  const double* words = nullptr;
  double* stacks = nullptr;  // [blocks, depth]
  double* sums = nullptr;    // [blocks]

  SPILLWAY_GPU void operator()(const Gpu& gpu) const {
    const auto block = static_cast<int>(gpu.block() * kThreads + gpu.thread());
    if (block >= blocks) return;
    double* const stack = stacks + static_cast<std::int64_t>(block) * depth;
    int held = 0;
    double top = 0;  // the topmost number is held here, the others on the stack
    const std::int32_t end = gpu.load(begin + block + 1);
    for (std::int32_t at = gpu.load(begin + block); at < end; ++at) {
      const Pack<std::int32_t, 2> step = gpu.load(reinterpret_cast<const Pack<std::int32_t, 2>*>(steps + at));
      if (held > 0) gpu.store(stack + held - 1, top);
      ++held;
      top = gpu.load(words + step.x[0]);
      for (int join = 0; join < step.x[1]; ++join) {
        --held;
        top = gpu.load(stack + held - 1) + top;
      }
    }
    gpu.store(sums + block, top);
  }
};

}  // namespace spillway::cuda
