// Sinks of attention: a pass over the results of attention that weighs them anew, and the sinks' gradient.
//
// Legend: B sequences of T queries, n = B * T rows, Hq heads, D head dimension.
#pragma once

#include <cmath>
#include <cstdint>

#include "models/cuda/partial_sums.h"
#include "models/cuda/vectors.cuh"
#include "models/kernel_shapes.h"

namespace spillway::cuda {

template <typename T, typename Lse>
struct SinkArguments {
  ops::AttentionShape shape;
  const T* sinks = nullptr;  // [Hq]
  Lse* lse = nullptr;        // [B,Hq,T]
  SPILLWAY_GPU Lse* lse_at(std::int64_t row, std::int64_t head) const {
    return lse + (row / shape.queries * shape.heads + head) * shape.queries + row % shape.queries;
  }
};

// In place: o and lse with one more score that has no value. A warp has a row of a head.
template <typename T>
struct WeighSink {
  static constexpr int kThreads = 256, kHeadsOfBlock = kThreads / 32;
  SinkArguments<T, float> of;
  std::int64_t heads = 0;  // n * Hq
  T* o = nullptr;          // [n,Hq*D]

  SPILLWAY_GPU void operator()(const Gpu& gpu) const {
    const std::int64_t at = gpu.block() * kHeadsOfBlock + gpu.warp();
    if (at >= heads) return;  // all lanes of the warp
    const std::int64_t D = of.shape.head_dim, head = at % of.shape.heads;
    float* const lse = of.lse_at(at / of.shape.heads, head);
    const float sink = to_float(gpu.load(of.sinks + head)), log_sum = gpu.load(lse);
    const float rest = 1.0f / (1.0f + expf(sink - log_sum));
    for (std::int64_t d = at * D + gpu.lane(); d < (at + 1) * D; d += 32)
      gpu.store(o + d, from_float<T>(to_float(gpu.load(o + d)) * rest));
    gpu.sync_warp();  // all lanes have read lse
    if (gpu.lane() == 0) gpu.store(lse, fmaxf(sink, log_sum) + log1pf(expf(-fabsf(sink - log_sum))));
  }
};

// dsinks (=|+=) minus the sum over rows of exp(sink - lse) times o . d_o. A block has a head; its warps take turns at the
// rows.
template <typename T>
struct SinkGradient {
  static constexpr int kThreads = 256, kWarps = kThreads / 32;
  static constexpr std::int64_t kShared = kWarps * sizeof(double);
  SinkArguments<T, const float> of;
  const T *o = nullptr, *d_o = nullptr;
  float* dsinks = nullptr;
  bool adds = false;

  SPILLWAY_GPU void operator()(const Gpu& gpu) const {
    const ops::AttentionShape& s = of.shape;
    const std::int64_t head = gpu.block(), D = s.head_dim;
    const float sink = to_float(gpu.load(of.sinks + head));
    double sum = 0;
    for (std::int64_t row = gpu.warp(); row < s.sequences * s.queries; row += kWarps) {
      float along = 0;
      for (std::int64_t d = (row * s.heads + head) * D + gpu.lane(); d < (row * s.heads + head + 1) * D; d += 32)
        along += to_float(gpu.load(o + d)) * to_float(gpu.load(d_o + d));
      along = warp_sum(gpu, along);
      sum -= static_cast<double>(expf(sink - gpu.load(of.lse_at(row, head)))) * static_cast<double>(along);
    }
    const auto sums = gpu.shared<double>();
    if (gpu.lane() == 0) gpu.store(sums + gpu.warp(), sum);
    gpu.sync();
    if (gpu.thread() != 0) return;
    for (int i = 1; i < kWarps; ++i) sum += gpu.load(sums + i);
    if (adds) sum += gpu.load(dsinks + head);
    gpu.store(dsinks + head, static_cast<float>(sum));
  }
};

}  // namespace spillway::cuda
