// RMSNorm, and LayerNorm where there is a bias: forward, recomputation, backward.
// In the forward a warp has a row, whose sums are a fixed tree of lanes. Parameters' gradients are sums of kNormRows rows by each
// block, which sum_partials() adds up in a fixed order.
//
// Legend: n rows, H hidden.
#pragma once

#include <cmath>

#include "models/cuda/partial_sums.h"
#include "models/cuda/vectors.cuh"

namespace spillway::cuda {

template <typename T>
struct NormArguments {
  std::int64_t rows = 0, hidden = 0, stride = 0;  // stride: elements between rows of x and y
  float epsilon = 0, offset = 0;
  const T *x = nullptr, *weight = nullptr, *bias = nullptr, *residual = nullptr;
  T* y = nullptr;
  float* statistics = nullptr;  // rstd[n], for LayerNorm also mean[n]
};

// y (= residual +) norm(x); with `again`, from the statistics that exist.
template <typename T, int n, bool again>
struct NormForward {
  static constexpr int kThreads = 256, kRowsOfBlock = kThreads / 32;
  NormArguments<T> of;

  SPILLWAY_GPU void operator()(const Gpu& gpu) const {
    const std::int64_t row = gpu.block() * kRowsOfBlock + gpu.warp();
    if (row >= of.rows) return;  // all lanes of the warp
    const std::int64_t H = of.hidden;
    const T* x = of.x + row * of.stride;
    float rstd = 0, mean = 0;
    if constexpr (again) {
      rstd = gpu.load(of.statistics + row);
      if (of.bias != nullptr) mean = gpu.load(of.statistics + of.rows + row);
    } else {
      if (of.bias != nullptr) mean = sum_over(gpu, x, [](float value) { return value; }) / static_cast<float>(H);
      const float squares = sum_over(gpu, x, [mean](float value) { return (value - mean) * (value - mean); });
      rstd = 1.0f / sqrtf(squares / static_cast<float>(H) + of.epsilon);
      if (gpu.lane() == 0) {
        gpu.store(of.statistics + row, rstd);
        if (of.bias != nullptr) gpu.store(of.statistics + of.rows + row, mean);
      }
    }
    for (std::int64_t j = gpu.lane() * n; j < H; j += 32 * n) {
      auto y = load_floats<T, n>(gpu, x + j);
      const auto weight = load_floats<T, n>(gpu, of.weight + j);
      for (int i = 0; i < n; ++i) y.x[i] = (y.x[i] - mean) * rstd * (of.offset + weight.x[i]);
      if (of.bias != nullptr) {
        const auto bias = load_floats<T, n>(gpu, of.bias + j);
        for (int i = 0; i < n; ++i) y.x[i] += bias.x[i];
      }
      if (of.residual != nullptr) {
        const auto residual = load_floats<T, n>(gpu, of.residual + row * H + j);
        for (int i = 0; i < n; ++i) y.x[i] += residual.x[i];
      }
      store_floats<T, n>(gpu, of.y + row * of.stride + j, y);
    }
  }

 private:
  template <typename F>
  SPILLWAY_GPU float sum_over(const Gpu& gpu, const T* x, const F& f) const {
    float sum = 0;
    for (std::int64_t j = gpu.lane() * n; j < of.hidden; j += 32 * n) {
      const auto floats = load_floats<T, n>(gpu, x + j);
      for (int i = 0; i < n; ++i) sum += f(floats.x[i]);
    }
    return warp_sum(gpu, sum);
  }
};

template <typename T, typename G>
struct NormBackwardArguments {
  std::int64_t rows = 0, hidden = 0, stride = 0;  // stride: elements between rows of dy, x and dx
  float offset = 0;
  const G* dy = nullptr;
  const T *x = nullptr, *weight = nullptr, *residual_gradient = nullptr;
  const float* statistics = nullptr;
  T* dx = nullptr;
  float* partial = nullptr;  // [ceil(n / kNormRows), H], of dweight; with a bias, the same of dbias behind all of these
};

// dx = residual_gradient (if any) + the norm's, and the partial sums. A block goes through its rows one after the other; each
// thread has the same columns of all rows, so that its sums stay its own. `sweeps` times kThreads packs cover a row. A row is
// read twice, the second time from the cache, so that registers are left for the sums.
template <typename T, typename G, int n, int sweeps, bool has_bias>
struct NormBackward {
  static constexpr int kThreads = 256, kWarps = kThreads / 32;
  static constexpr std::int64_t kShared = 2 * 2 * kWarps * sizeof(float);
  NormBackwardArguments<T, G> of;

  SPILLWAY_GPU void operator()(const Gpu& gpu) const {
    const std::int64_t H = of.hidden, first = gpu.block() * kNormRows;
    const std::int64_t rows = first + kNormRows < of.rows ? kNormRows : of.rows - first;
    Floats<n> dweight[sweeps] = {}, dbias[has_bias ? sweeps : 1] = {};
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::int64_t row = first + r;
      const float rstd = gpu.load(of.statistics + row), mean = has_bias ? gpu.load(of.statistics + of.rows + row) : 0.0f;
      float along = 0, sum = 0;
      each_sweep(gpu, [&](int s, std::int64_t j) {
        const Terms terms = terms_of(gpu, row, j, rstd, mean);
        for (int i = 0; i < n; ++i) {
          along += terms.inner.x[i] * terms.normed.x[i], sum += terms.inner.x[i];
          dweight[s].x[i] += terms.dy.x[i] * terms.normed.x[i];
          if constexpr (has_bias) dbias[s].x[i] += terms.dy.x[i];
        }
      });
      block_sums(gpu, static_cast<int>(r % 2), along, sum);
      along /= static_cast<float>(H), sum = has_bias ? sum / static_cast<float>(H) : 0.0f;
      each_sweep(gpu, [&](int, std::int64_t j) {
        const Terms terms = terms_of(gpu, row, j, rstd, mean);
        Floats<n> dx;
        for (int i = 0; i < n; ++i) dx.x[i] = rstd * (terms.inner.x[i] - sum - terms.normed.x[i] * along);
        if (of.residual_gradient != nullptr) {
          const auto residual = load_floats<T, n>(gpu, of.residual_gradient + row * H + j);
          for (int i = 0; i < n; ++i) dx.x[i] += residual.x[i];
        }
        store_floats<T, n>(gpu, of.dx + row * of.stride + j, dx);
      });
    }
    each_sweep(gpu, [&](int s, std::int64_t j) {
      store_sums(gpu, of.partial + gpu.block() * H + j, dweight[s]);
      if constexpr (has_bias) store_sums(gpu, of.partial + (gpu.blocks() + gpu.block()) * H + j, dbias[s]);
    });
  }

 private:
  struct Terms {
    Floats<n> dy, inner, normed;  // inner: the gradient of the normed value
  };
  SPILLWAY_GPU Terms terms_of(const Gpu& gpu, std::int64_t row, std::int64_t j, float rstd, float mean) const {
    Terms terms{.dy = load_floats<G, n>(gpu, of.dy + row * of.stride + j)};
    const auto x = load_floats<T, n>(gpu, of.x + row * of.stride + j), weight = load_floats<T, n>(gpu, of.weight + j);
    for (int i = 0; i < n; ++i) {
      terms.normed.x[i] = (x.x[i] - mean) * rstd;
      terms.inner.x[i] = terms.dy.x[i] * (of.offset + weight.x[i]);
    }
    return terms;
  }
  template <typename F>
  SPILLWAY_GPU void each_sweep(const Gpu& gpu, const F& f) const {
    SPILLWAY_UNROLL
    for (int s = 0; s < sweeps; ++s) {
      const std::int64_t j = (s * kThreads + gpu.thread()) * n;
      if (j < of.hidden) f(s, j);
    }
  }
  // Sums over the block, the same in all threads. Two places take turns, so that one barrier per row is enough.
  SPILLWAY_GPU static void block_sums(const Gpu& gpu, int place, float& a, float& b) {
    a = warp_sum(gpu, a), b = warp_sum(gpu, b);
    const auto sums = gpu.template shared<float>(place * 2 * kWarps * static_cast<int>(sizeof(float)));
    if (gpu.lane() == 0) gpu.store(sums + gpu.warp(), a), gpu.store(sums + (kWarps + gpu.warp()), b);
    gpu.sync();
    a = 0, b = 0;
    for (int w = 0; w < kWarps; ++w) a += gpu.load(sums + w), b += gpu.load(sums + (kWarps + w));
  }
};

// out[c] (=|+=) the sum over `count` rows of partial[count, columns], rows `stride` apart, in a fixed order: eight runs, each of
// every eighth row, then the sum of the runs.
struct SumPartials {
  static constexpr int kThreads = 256, kColumns = 32, kRuns = kThreads / kColumns;
  static constexpr std::int64_t kShared = kThreads * sizeof(float);
  std::int64_t count = 0, columns = 0, stride = 0;
  const float* partial = nullptr;
  float* out = nullptr;
  bool adds = false;

  SPILLWAY_GPU void operator()(const Gpu& gpu) const {
    const std::int64_t column = gpu.block() * kColumns + gpu.lane();
    float sum = 0;
    for (std::int64_t row = gpu.warp(); row < count && column < columns; row += kRuns)
      sum += gpu.load(partial + row * stride + column);
    const auto sums = gpu.shared<float>();
    gpu.store(sums + gpu.thread(), sum);
    gpu.sync();
    if (gpu.warp() != 0 || column >= columns) return;
    for (int run = 1; run < kRuns; ++run) sum += gpu.load(sums + (run * kColumns + gpu.lane()));
    gpu.store(out + column, adds ? gpu.load(out + column) + sum : sum);
  }
};

}  // namespace spillway::cuda
