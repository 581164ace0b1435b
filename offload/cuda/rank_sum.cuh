// Adds the same elements of several ranks in fp32 with the host's bits (collectives/rank_sum.h has the tree).
#pragma once

#include <algorithm>
#include <span>

#include "memory/base/error.h"
#include "models/cuda/vectors.cuh"

namespace spillway::cuda {

// The most ranks whose elements one kernel adds: as many addresses go with a launch.
inline constexpr int kMostSummed = 256;

// out[i] = sum of all of[rank][i]. A thread has n elements.
template <int n>
struct SumOverRanks {
  static constexpr int kThreads = 256, kLevels = 9;  // of a tree of kMostSummed
  std::int64_t elements = 0;                         // a multiple of n
  int ranks = 0;
  float* out = nullptr;
  const float* of[kMostSummed] = {};

  SPILLWAY_GPU void operator()(const Gpu& gpu) const {
    const std::int64_t at = (gpu.block() * kThreads + gpu.thread()) * n;
    if (at >= elements) return;
    // A binary counter that carries sums of whole subtrees; what is open at the end is joined from the smallest one on.
    Floats<n> open[kLevels], sum{};
    SPILLWAY_NO_UNROLL
    for (int rank = 0; rank < ranks; ++rank) {
      sum = load_floats<float, n>(gpu, of[rank] + at);
      bool carries = true;
      SPILLWAY_UNROLL
      for (int level = 0; level < kLevels; ++level) {
        if (!carries) continue;
        if ((rank >> level) % 2 == 1) {
          sum = added(open[level], sum);
        } else {
          open[level] = sum, carries = false;
        }
      }
    }
    bool has_one = false;
    SPILLWAY_UNROLL
    for (int level = 0; level < kLevels; ++level) {
      if ((ranks >> level) % 2 == 0) continue;
      sum = has_one ? added(open[level], sum) : open[level];
      has_one = true;
    }
    store_floats<float, n>(gpu, out + at, sum);
  }

 private:
  static SPILLWAY_GPU Floats<n> added(const Floats<n>& left, const Floats<n>& right) {
    Floats<n> sum;
    for (int i = 0; i < n; ++i) sum.x[i] = left.x[i] + right.x[i];
    return sum;
  }
};

// Enqueues the sum; uses packs where all arrays are aligned for them.
inline void device_sum_over_ranks(Queue& queue, std::span<const float* const> of, std::int64_t elements, float* out) {
  SPILLWAY_CHECK(!of.empty() && of.size() <= static_cast<std::size_t>(kMostSummed), "a sum over {} ranks on a device", of.size());
  if (elements == 0) return;
  auto address = reinterpret_cast<std::uintptr_t>(out);
  for (const float* const array : of) address |= reinterpret_cast<std::uintptr_t>(array);
  const auto start = [&]<int n>(SumOverRanks<n> kernel) {
    kernel.elements = elements, kernel.ranks = static_cast<int>(of.size()), kernel.out = out;
    std::ranges::copy(of, kernel.of);
    launch(queue, {(elements / n + kernel.kThreads - 1) / kernel.kThreads}, kernel);
  };
  address % 16 == 0 && elements % 4 == 0 ? start(SumOverRanks<4>()) : start(SumOverRanks<1>());
}

}  // namespace spillway::cuda
