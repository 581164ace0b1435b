// The loss over a vocabulary that comes in tiles: running maximum and sum of exponentials of each row, then the losses, then
// gradients in place of the logits.
//
// Legend: S rows of a strip, R rows (columns of logits) of a vocabulary tile.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "models/cuda/pointwise.cuh"
#include "models/kernel_shapes.h"

namespace spillway::cuda {

// The largest of some numbers, and the sum of exp(number - largest).
struct RunningSum {
  float maximum, sum;
  // An empty sum has a maximum of -infinity; joining it gives no NaN.
  static SPILLWAY_GPU RunningSum joined(RunningSum a, RunningSum b) {
    const float most = a.maximum > b.maximum ? a.maximum : b.maximum;
    const auto part = [most](RunningSum of) { return of.sum == 0.0f ? 0.0f : of.sum * expf(of.maximum - most); };
    return {most, part(a) + part(b)};
  }
};

// Each block has a row. With a cap the logits first become cap * tanh(logit / cap), in place.
template <typename T, int n>
struct LossTile {
  static constexpr int kThreads = 256, kWarps = kThreads / 32;
  static constexpr std::int64_t kShared = 2 * kWarps * sizeof(float);
  ops::VocabularyTile tile;
  bool begins = false;
  float cap = 0;
  T* logits = nullptr;  // [S, R]
  const std::int32_t* targets = nullptr;
  float *maximum = nullptr, *sum = nullptr, *target_logit = nullptr;  // [S]

  SPILLWAY_GPU void operator()(const Gpu& gpu) const {
    const std::int64_t row = gpu.block(), target = gpu.load(targets + row) - tile.first;
    RunningSum mine{-infinity(), 0.0f};
    for (std::int64_t j = gpu.thread() * n; j < tile.rows; j += kThreads * n) {
      auto x = load_floats<T, n>(gpu, logits + row * tile.rows + j);
      if (cap > 0) {
        for (int i = 0; i < n; ++i) x.x[i] = to_float(from_float<T>(cap * tanhf(x.x[i] / cap)));
        store_floats<T, n>(gpu, logits + row * tile.rows + j, x);
      }
      float most = mine.maximum;
      for (int i = 0; i < n; ++i) most = most > x.x[i] ? most : x.x[i];
      mine = {most, mine.sum * gpu.exp2((mine.maximum - most) * kLog2E)};
      for (int i = 0; i < n; ++i) mine.sum += gpu.exp2((x.x[i] - most) * kLog2E);
      if (target < j || target >= j + n) continue;
      for (int i = 0; i < n; ++i) {
        if (j + i == target) gpu.store(target_logit + row, x.x[i]);
      }
    }
    for (int mask = 16; mask > 0; mask /= 2)
      mine = RunningSum::joined(mine, {gpu.shuffle_xor(mine.maximum, mask), gpu.shuffle_xor(mine.sum, mask)});
    const auto of_warps = gpu.shared<float>();
    if (gpu.lane() == 0) gpu.store(of_warps + gpu.warp(), mine.maximum), gpu.store(of_warps + (kWarps + gpu.warp()), mine.sum);
    gpu.sync();
    if (gpu.thread() != 0) return;
    RunningSum all{-infinity(), 0.0f};
    if (!begins) all = {gpu.load(maximum + row), gpu.load(sum + row)};
    for (int w = 0; w < kWarps; ++w) all = RunningSum::joined(all, {gpu.load(of_warps + w), gpu.load(of_warps + (kWarps + w))});
    gpu.store(maximum + row, all.maximum), gpu.store(sum + row, all.sum);
    // If the target lies in this tile, the thread that has it has stored its logit already; a later tile may still store it.
    if (begins && (target < 0 || target >= tile.rows)) gpu.store(target_logit + row, 0.0f);
  }

 private:
  static SPILLWAY_GPU float infinity() { return std::numeric_limits<float>::infinity(); }
};

// Computes the rows' log-sum-exp, and the sum of their losses in double, by one block: a thread has every 256th row; a tree adds
// up.
struct LossFinish {
  static constexpr int kThreads = 256;
  static constexpr std::int64_t kShared = kThreads * sizeof(double);
  std::int64_t rows = 0;
  bool begins = false;
  const std::int32_t* targets = nullptr;
  const float *maximum = nullptr, *sum = nullptr, *target_logit = nullptr;
  float* log_sum_exp = nullptr;
  double* loss_sum = nullptr;

  SPILLWAY_GPU void operator()(const Gpu& gpu) const {
    double total = 0;
    for (std::int64_t row = gpu.thread(); row < rows; row += kThreads) {
      const double whole = gpu.load(maximum + row) + log(static_cast<double>(gpu.load(sum + row)));
      gpu.store(log_sum_exp + row, static_cast<float>(whole));
      if (gpu.load(targets + row) != ops::kIgnoredTarget) total += whole - gpu.load(target_logit + row);
    }
    const auto sums = gpu.shared<double>();
    for (int half = kThreads; half > 0; half /= 2) {
      if (gpu.thread() < half && half < kThreads) total += gpu.load(sums + (half + gpu.thread()));
      if (gpu.thread() < half) gpu.store(sums + gpu.thread(), total);
      gpu.sync();
    }
    if (gpu.thread() == 0) gpu.store(loss_sum, begins ? total : gpu.load(loss_sum) + total);
  }
};

// In place: logits become their gradients, times loss_scale.
template <typename T, int n>
struct LossBackward {
  static constexpr int kThreads = kPointwiseThreads;
  std::int64_t rows = 0;
  ops::VocabularyTile tile;
  float cap = 0;
  T* logits = nullptr;
  const std::int32_t* targets = nullptr;
  const float *log_sum_exp = nullptr, *loss_scale = nullptr;

  SPILLWAY_GPU void operator()(const Gpu& gpu) const {
    const std::int64_t i = gpu.block() * kThreads + gpu.thread(), packs = tile.rows / n, row = i / packs, j = i % packs * n;
    if (row >= rows) return;
    const std::int32_t target = gpu.load(targets + row);
    const float whole = gpu.load(log_sum_exp + row), scale = target == ops::kIgnoredTarget ? 0.0f : gpu.load(loss_scale);
    auto x = load_floats<T, n>(gpu, logits + row * tile.rows + j);
    for (int k = 0; k < n; ++k) {
      const float p = expf(x.x[k] - whole) - (target == tile.first + j + k ? 1.0f : 0.0f), bent = cap > 0 ? x.x[k] / cap : 0.0f;
      x.x[k] = scale == 0.0f ? 0.0f : p * (1.0f - bent * bent) * scale;
    }
    store_floats<T, n>(gpu, logits + row * tile.rows + j, x);
  }
};

// Gives the logits of one row, if the strip has it.
template <typename T>
struct GiveLogits {
  static constexpr int kThreads = kPointwiseThreads;
  std::int64_t first_row = 0, rows = 0, columns = 0;
  const T* logits = nullptr;
  const std::int64_t* logits_row = nullptr;
  float* out = nullptr;

  SPILLWAY_GPU void operator()(const Gpu& gpu) const {
    const std::int64_t j = gpu.block() * kThreads + gpu.thread(), row = gpu.load(logits_row) - first_row;
    if (j < columns && row >= 0 && row < rows) gpu.store(out + j, to_float(gpu.load(logits + row * columns + j)));
  }
};

}  // namespace spillway::cuda
