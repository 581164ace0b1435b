// Rows of an embedding by token, and their gradients. The vocabulary comes in tiles; a token lies in one.
// The gradient of a row is the sum over the places where its token stands, in their order, by one owner: the first of these
// places. A kernel of its own finds the places without sorting: each place looks for the next one with its token.
//
// Legend: n rows (tokens), H hidden.
#pragma once

#include <cstdint>

#include "models/cuda/pointwise.cuh"
#include "models/kernel_shapes.h"

namespace spillway::cuda {

// x[i] = factor * table[token i] for the tokens of the tile.
template <typename T, int n>
struct LookUp {
  static constexpr int kThreads = kPointwiseThreads;
  std::int64_t rows = 0, hidden = 0;
  ops::VocabularyTile tile;
  float factor = 1;
  const std::int32_t* tokens = nullptr;
  const T* table = nullptr;
  T* x = nullptr;

  SPILLWAY_GPU void operator()(const Gpu& gpu) const {
    const std::int64_t i = gpu.block() * kThreads + gpu.thread(), packs = hidden / n, row = i / packs, column = i % packs * n;
    if (row >= rows) return;
    const std::int64_t of_tile = gpu.load(tokens + row) - tile.first;
    if (of_tile < 0 || of_tile >= tile.rows) return;
    auto floats = load_floats<T, n>(gpu, table + of_tile * hidden + column);
    for (int k = 0; k < n; ++k) floats.x[k] *= factor;
    store_floats<T, n>(gpu, x + row * hidden + column, floats);
  }
};

// Finds for each place the next one with the same token, or n, and whether it is the first. A place that is passed over has no
// owner.
struct SamePlaces {
  static constexpr int kThreads = 256;
  static constexpr std::int64_t kShared = kThreads * sizeof(std::int32_t);
  std::int64_t rows = 0;
  ops::VocabularyTile tile;
  std::int64_t padding = -1;
  const std::int32_t* tokens = nullptr;
  std::int32_t* next = nullptr;   // [n]
  std::int32_t* owner = nullptr;  // [n]: 1 where it is the first of its token

  SPILLWAY_GPU void operator()(const Gpu& gpu) const {
    const std::int64_t row = gpu.block() * kThreads + gpu.thread();
    const std::int32_t token = row < rows ? gpu.load(tokens + row) : -1;
    std::int64_t found = rows;
    bool is_first = row < rows && token != padding && token >= tile.first && token < tile.first + tile.rows;
    const auto some = gpu.shared<std::int32_t>();
    for (std::int64_t begin = 0; begin < rows; begin += kThreads) {
      gpu.sync();
      gpu.store(some + gpu.thread(), begin + gpu.thread() < rows ? gpu.load(tokens + begin + gpu.thread()) : -1);
      gpu.sync();
      for (int i = 0; i < kThreads; ++i) {
        if (gpu.load(some + i) != token) continue;
        is_first = is_first && begin + i >= row;
        if (begin + i > row && begin + i < found) found = begin + i;
      }
    }
    if (row >= rows) return;
    gpu.store(next + row, static_cast<std::int32_t>(found));
    gpu.store(owner + row, is_first ? 1 : 0);
  }
};

// dtable[token] += factor * dx of the token's places, one after the other, as the host adds them. In a step's first micro-batch,
// another kernel sets the table to zeros before.
template <typename T, int n>
struct LookUpBackward {
  static constexpr int kThreads = kPointwiseThreads;
  std::int64_t rows = 0, hidden = 0;
  ops::VocabularyTile tile;
  float factor = 1;
  const std::int32_t *tokens = nullptr, *next = nullptr, *owner = nullptr;
  const T* dx = nullptr;
  float* dtable = nullptr;

  SPILLWAY_GPU void operator()(const Gpu& gpu) const {
    const std::int64_t i = gpu.block() * kThreads + gpu.thread(), packs = hidden / n, row = i / packs, column = i % packs * n;
    if (row >= rows || gpu.load(owner + row) == 0) return;
    float* const to = dtable + (gpu.load(tokens + row) - tile.first) * hidden + column;
    Floats<n> sum = load_sums<n>(gpu, to);
    for (std::int64_t place = row; place < rows; place = gpu.load(next + place)) {
      const auto added = load_floats<T, n>(gpu, dx + place * hidden + column);
      for (int k = 0; k < n; ++k) sum.x[k] = Gpu::add(sum.x[k], Gpu::multiply(factor, added.x[k]));
    }
    store_sums(gpu, to, sum);
  }
};

struct Zero {
  static constexpr int kThreads = kPointwiseThreads;
  std::int64_t elements = 0;
  float* x = nullptr;
  SPILLWAY_GPU void operator()(const Gpu& gpu) const {
    const std::int64_t i = gpu.block() * kThreads + gpu.thread();
    if (i < elements) gpu.store(x + i, 0.0f);
  }
};

}  // namespace spillway::cuda
