// How an expert takes its rows from a micro-batch, weighs them, and adds its results.
//
// Legend: H hidden, I inner width, m rows of a piece of which the first `used` are an expert's, k places of a row.
#pragma once

#include <cstdint>

#include "models/cuda/pointwise.cuh"
#include "models/routing.h"

namespace spillway::cuda {

// The expert's rows of x, then zeros.
template <typename T, int n>
struct GatherRows {
  static constexpr int kThreads = kPointwiseThreads;
  std::int64_t m = 0, used = 0, hidden = 0, k = 0;
  const std::int32_t* places = nullptr;
  const T* x = nullptr;
  T* rows = nullptr;

  SPILLWAY_GPU void operator()(const Gpu& gpu) const {
    const std::int64_t i = gpu.block() * kThreads + gpu.thread(), packs = hidden / n, row = i / packs, column = i % packs * n;
    if (row >= m) return;
    Floats<n> floats{};
    if (row < used) floats = load_floats<T, n>(gpu, x + gpu.load(places + row) / k * hidden + column);
    store_floats<T, n>(gpu, rows + row * hidden + column, floats);
  }
};

// sum[row of place] += factor * (out + bias); the factor is the place's weight, or 1 where there are none. A row comes to an
// expert once.
template <typename T, int n>
struct AddRows {
  static constexpr int kThreads = kPointwiseThreads;
  std::int64_t used = 0, hidden = 0, k = 0;
  const std::int32_t* places = nullptr;
  const float *weights = nullptr, *out = nullptr;
  const T* bias = nullptr;  // [H] or null
  float* sum = nullptr;

  SPILLWAY_GPU void operator()(const Gpu& gpu) const {
    const std::int64_t i = gpu.block() * kThreads + gpu.thread(), packs = hidden / n, row = i / packs, column = i % packs * n;
    if (row >= used) return;
    const std::int64_t place = gpu.load(places + row);
    const float factor = weights == nullptr ? 1.0f : gpu.load(weights + place);
    auto added = load_sums<n>(gpu, out + row * hidden + column);
    if (bias != nullptr) {
      for (int j = 0; j < n; ++j) added.x[j] += to_float(gpu.load(bias + column + j));
    }
    for (int j = 0; j < n; ++j) added.x[j] *= factor;
    sum_into<n>(gpu, sum + place / k * hidden + column, added, true);
  }
};

// dweights[place] = h . dh, and the bias . dy where there is one; then h and dup are multiplied by the place's weight. A warp has
// a row.
template <typename T>
struct WeighRows {
  static constexpr int kThreads = 256, kRowsOfBlock = kThreads / 32;
  std::int64_t used = 0, width = 0, hidden = 0;
  const std::int32_t* places = nullptr;
  const float* weights = nullptr;
  const T *dh = nullptr, *dy = nullptr, *bias = nullptr;
  T *h = nullptr, *dup = nullptr;
  float* dweights = nullptr;

  SPILLWAY_GPU void operator()(const Gpu& gpu) const {
    const std::int64_t row = gpu.block() * kRowsOfBlock + gpu.warp();
    if (row >= used) return;  // all lanes of the warp
    const std::int64_t place = gpu.load(places + row);
    const float weight = gpu.load(weights + place);
    float along = 0;
    for (std::int64_t j = row * width + gpu.lane(); j < (row + 1) * width; j += 32) {
      const float value = to_float(gpu.load(h + j));
      along += value * to_float(gpu.load(dh + j));
      gpu.store(h + j, from_float<T>(value * weight));
    }
    for (std::int64_t j = gpu.lane(); bias != nullptr && j < hidden; j += 32)
      along += to_float(gpu.load(bias + j)) * to_float(gpu.load(dy + row * hidden + j));
    along = warp_sum(gpu, along);
    if (gpu.lane() == 0) gpu.store(dweights + place, along);
    for (std::int64_t j = row * 2 * width + gpu.lane(); j < (row + 1) * 2 * width; j += 32)
      gpu.store(dup + j, from_float<T>(to_float(gpu.load(dup + j)) * weight));
  }
};

// sums (=|+=) the rows of x, each times its place's weight where there are weights. A thread has a column, and goes through the
// rows in their order. Written sums are followed by zeros up to a multiple of kPieceAlignment.
template <typename T>
struct SumRows {
  static constexpr int kThreads = kPointwiseThreads;
  std::int64_t used = 0, columns = 0;
  const std::int32_t* places = nullptr;
  const float* weights = nullptr;
  const T* x = nullptr;
  float* sums = nullptr;
  bool adds = false;

  SPILLWAY_GPU void operator()(const Gpu& gpu) const {
    const std::int64_t column = gpu.block() * kThreads + gpu.thread();
    if (column >= ops::padded(columns) || (adds && column >= columns)) return;
    float sum = adds ? gpu.load(sums + column) : 0.0f;
    for (std::int64_t row = 0; row < used && column < columns; ++row) {
      const float factor = weights == nullptr ? 1.0f : gpu.load(weights + gpu.load(places + row));
      sum += factor * to_float(gpu.load(x + row * columns + column));
    }
    gpu.store(sums + column, sum);
  }
};

}  // namespace spillway::cuda
