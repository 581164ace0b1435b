// The softmax of sixteen queries over tile after tile of keys, as forward kernels keep it in the registers of a warp: powers of
// scores with the largest score so far as their base.
//
// Legend: as in attention_tile.cuh. A lane has rows lane / 4 and lane / 4 + 8, in this order, and of products the columns that it
// has of Sums.
#pragma once

#include "models/cuda/attention_tile.cuh"

namespace spillway::cuda {

// A factor for each of a lane's two rows.
struct RowFactors {
  float x[2];
};

template <int n>
SPILLWAY_GPU void scale_rows(Sums<n>& sums, const RowFactors& by) {
  SPILLWAY_UNROLL
  for (int j = 0; j < n / 8; ++j) {
    SPILLWAY_UNROLL
    for (int i = 0; i < 4; ++i) sums.x[j][i] *= by.x[i / 2];
  }
}

template <int n>
SPILLWAY_GPU void bend(const Gpu& gpu, const Scores& scores, Sums<n>& products) {
  SPILLWAY_UNROLL
  for (int j = 0; j < n / 8; ++j) {
    SPILLWAY_UNROLL
    for (int i = 0; i < 4; ++i) products.x[j][i] = scores.bent(gpu, products.x[j][i]);
  }
}

// Sets products to -infinity where the queries from `query` on do not see one of the n keys.
template <int n>
SPILLWAY_GPU void mask(const Gpu& gpu, const Sight& sight, Sums<n>& products, int query, int first_key) {
  SPILLWAY_UNROLL
  for (int half = 0; half < 2; ++half) {
    const int t = query + 8 * half + gpu.lane() / 4, column = first_key + 2 * (gpu.lane() % 4);
    const int from = sight.first(gpu, t) - column, to = sight.last(t) - column;
    SPILLWAY_UNROLL
    for (int j = 0; j < n / 8; ++j) {
      SPILLWAY_UNROLL
      for (int i = 0; i < 2; ++i) {
        if (8 * j + i < from || 8 * j + i > to) products.x[j][2 * half + i] = -INFINITY;
      }
    }
  }
}

struct Softmax {
  float most[2] = {-INFINITY, -INFINITY}, total[2] = {};  // the largest product so far, and the sum of the lane's powers

  // Turns products into powers of two. Returns the factors that bring earlier sums to the same base.
  template <int n>
  SPILLWAY_GPU RowFactors soften(const Gpu& gpu, const Scores& scores, Sums<n>& products) {
    RowFactors before;
    SPILLWAY_UNROLL
    for (int half = 0; half < 2; ++half) {
      float largest = most[half];
      SPILLWAY_UNROLL
      for (int j = 0; j < n / 8; ++j) largest = fmaxf(largest, fmaxf(products.x[j][2 * half], products.x[j][2 * half + 1]));
      // The maximum over the four lanes that share a row.
      largest = fmaxf(largest, gpu.shuffle_xor(largest, 1));
      largest = fmaxf(largest, gpu.shuffle_xor(largest, 2));
      // A row that has not seen a key yet has no base, and its powers are zeros.
      const float base = largest == -INFINITY ? 0.0f : largest * scores.to_log2;
      before.x[half] = gpu.exp2(most[half] * scores.to_log2 - base);
      float sum = 0;
      SPILLWAY_UNROLL
      for (int j = 0; j < n / 8; ++j) {
        SPILLWAY_UNROLL
        for (int i = 2 * half; i < 2 * half + 2; ++i) {
          products.x[j][i] = gpu.exp2(products.x[j][i] * scores.to_log2 - base);
          sum += products.x[j][i];
        }
      }
      most[half] = largest, total[half] = total[half] * before.x[half] + sum;
    }
    return before;
  }

  // Returns the factors for the final sums. Stores the log-sum-exp of queries before `end` to lse, if given.
  SPILLWAY_GPU RowFactors finish(const Gpu& gpu, const Scores& scores, float* lse, int query, int end) const {
    RowFactors factors;
    SPILLWAY_UNROLL
    for (int half = 0; half < 2; ++half) {
      float sum = total[half];
      sum += gpu.shuffle_xor(sum, 1);
      sum += gpu.shuffle_xor(sum, 2);
      factors.x[half] = 1.0f / sum;
      const int t = query + 8 * half + gpu.lane() / 4;
      if (lse != nullptr && gpu.lane() % 4 == 0 && t < end)
        gpu.store(lse + t, most[half] * (scores.to_log2 * Scores::kLn2) + logf(sum));
    }
    return factors;
  }
};

}  // namespace spillway::cuda
