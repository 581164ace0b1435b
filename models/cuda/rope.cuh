// Rotary positions, with norms of single heads where a model has them. A power of two of a warp's lanes have a head: each has a
// pack of its first half and the pack of the second half that turns with it.
//
// Legend: n rows, Hq / Hkv query / key-value heads, D head dimension.
#pragma once

#include <cmath>

#include "models/cuda/pointwise.cuh"
#include "models/kernel_shapes.h"

namespace spillway::cuda {

// A lane's part of a head, in both halves.
template <int n>
struct Halves {
  Floats<n> a, b;
};

template <typename T, int n>
struct RopeArguments {
  ops::RopeShape shape;
  int lanes = 1;  // per head: the least power of two from D / 2 / n on
  Moving<float> cosine, sine;
  Moving<float> q_cosine, q_sine;  // of queries; the same as those of keys, or their own
  const T *q_weight = nullptr, *k_weight = nullptr;
  const std::int32_t* first_key = nullptr;  // [n]; null: a sequence is one document

  // All rows together have fewer heads than 32 bits count; divisions of 64 bits would take longer than the memory.
  SPILLWAY_GPU int heads() const { return static_cast<int>(shape.heads + shape.kv_heads); }
  SPILLWAY_GPU int items() const { return static_cast<int>(shape.n) * heads(); }
  SPILLWAY_GPU bool is_query(int item) const { return item % heads() < shape.heads; }
  // The offset of head `item % heads()` of row `item / heads()`, in rows of `heads_of_row` heads.
  SPILLWAY_GPU std::int64_t place(int item, int heads_of_row) const {
    return (item / heads() * heads_of_row + item % heads()) * shape.dimension;
  }
  SPILLWAY_GPU Halves<n> load(const Gpu& gpu, const T* head, std::int64_t j) const {
    return {load_floats<T, n>(gpu, head + j), load_floats<T, n>(gpu, head + shape.dimension / 2 + j)};
  }
  SPILLWAY_GPU Halves<n> load_weight(const Gpu& gpu, int item, std::int64_t j) const {
    Halves<n> weight = load(gpu, is_query(item) ? q_weight : k_weight, j);
    for (int i = 0; i < n; ++i) weight.a.x[i] += shape.offset, weight.b.x[i] += shape.offset;
    return weight;
  }
  SPILLWAY_GPU void store(const Gpu& gpu, T* head, std::int64_t j, const Halves<n>& x) const {
    store_floats<T, n>(gpu, head + j, x.a), store_floats<T, n>(gpu, head + shape.dimension / 2 + j, x.b);
  }
  // Turns x by the angles of the row's position if `direction` is 1, and back if it is -1.
  SPILLWAY_GPU void rotate(const Gpu& gpu, Halves<n>& x, int item, std::int64_t j, float direction) const {
    const int row = item / heads(), begin = first_key == nullptr ? 0 : gpu.load(first_key + row);
    const std::int64_t angle = (row % static_cast<int>(shape.sequence) - begin) * (shape.dimension / 2) + j;
    const bool query = is_query(item);
    const auto cosines = load_sums<n>(gpu, (query ? q_cosine : cosine).at(gpu) + angle),
               sines = load_sums<n>(gpu, (query ? q_sine : sine).at(gpu) + angle);
    for (int i = 0; i < n; ++i) {
      const float c = cosines.x[i], s = direction * sines.x[i];
      const float a = x.a.x[i], b = x.b.x[i];
      x.a.x[i] = a * c - b * s, x.b.x[i] = b * c + a * s;
    }
  }
  SPILLWAY_GPU float sum_of_head(const Gpu& gpu, float x) const {
    for (int mask = lanes / 2; mask > 0; mask /= 2) x += gpu.shuffle_xor(x, mask);
    return x;
  }
  SPILLWAY_GPU float rstd(const Gpu& gpu, const Halves<n>& x) const {
    float squares = 0;
    for (int i = 0; i < n; ++i) squares += x.a.x[i] * x.a.x[i] + x.b.x[i] * x.b.x[i];
    return 1.0f / sqrtf(sum_of_head(gpu, squares) / static_cast<float>(shape.dimension) + shape.epsilon);
  }
};

// Turns raw qkv [n, (Hq + 2 Hkv) D] into queries and keys [n, (Hq + Hkv) D].
template <typename T, int n>
struct Rotate {
  static constexpr int kThreads = 256;
  RopeArguments<T, n> of;
  const T* qkv = nullptr;
  T* qk = nullptr;

  SPILLWAY_GPU void operator()(const Gpu& gpu) const {
    const int item = static_cast<int>(gpu.block()) * (kThreads / of.lanes) + gpu.thread() / of.lanes;
    const std::int64_t j = gpu.thread() % of.lanes * n;
    const bool is_there = item < of.items() && j < of.shape.dimension / 2;
    Halves<n> x{};
    if (is_there) x = of.load(gpu, qkv + of.place(item, of.heads() + static_cast<int>(of.shape.kv_heads)), j);
    if (of.q_weight != nullptr) {
      const float rstd = of.rstd(gpu, x);
      if (is_there) {
        const Halves<n> weight = of.load_weight(gpu, item, j);
        for (int i = 0; i < n; ++i) x.a.x[i] *= rstd * weight.a.x[i], x.b.x[i] *= rstd * weight.b.x[i];
      }
    }
    if (!is_there) return;
    of.rotate(gpu, x, item, j, 1.0f);
    of.store(gpu, qk + of.place(item, of.heads()), j, x);
  }
};

// In place: gradients of rotated queries and keys become those of the raw ones. Where there are norms, partial [ceil(n /
// kRopeRows), 2 D] gets sums of kRopeRows rows for their weights, of queries and then of keys.
template <typename T, int n>
struct RotateBackward {
  // Without this the compiler would sooner spill than do with fewer blocks.
  static constexpr int kThreads = 256, kBlocks = n == kWidest<float> ? 3 : 0;
  RopeArguments<T, n> of;
  const T* qkv = nullptr;
  T* dqkv = nullptr;
  float* partial = nullptr;
  // Shared memory of a launch with norms: the sums that each group of lanes makes of queries and keys.
  static std::int64_t shared_bytes(int lanes, std::int64_t dimension) {
    return kThreads / lanes * 2 * dimension * static_cast<std::int64_t>(sizeof(float));
  }

  SPILLWAY_GPU void operator()(const Gpu& gpu) const {
    const std::int64_t D = of.shape.dimension, j = gpu.thread() % of.lanes * n;
    const int width = of.heads() + static_cast<int>(of.shape.kv_heads), groups = kThreads / of.lanes;
    const int group = gpu.thread() / of.lanes;
    const int first = static_cast<int>(gpu.block() * kRopeRows) * of.heads(), whole = first + kRopeRows * of.heads();
    const int end = whole < of.items() ? whole : of.items();
    Halves<n> dq{}, dk{};
    // All groups go round equally often, because lanes of one warp add up together.
    for (int base = first; base < end; base += groups) {
      const int item = base + group;
      const bool is_there = item < end && j < D / 2;
      Halves<n> dy{};
      if (is_there) {
        dy = of.load(gpu, dqkv + of.place(item, width), j);
        of.rotate(gpu, dy, item, j, -1.0f);
      }
      if (of.q_weight != nullptr) {
        Halves<n> x{}, weight{};
        if (is_there) x = of.load(gpu, qkv + of.place(item, width), j), weight = of.load_weight(gpu, item, j);
        norm_backward(gpu, x, weight, of.is_query(item), dy, dq, dk);
      }
      if (is_there) of.store(gpu, dqkv + of.place(item, width), j, dy);
    }
    if (of.q_weight == nullptr) return;
    const auto sums = gpu.shared<float>();
    for (int i = 0; i < n && j < D / 2; ++i) {
      const auto mine = sums + (group * 2 * D + j + i);
      gpu.store(mine, dq.a.x[i]), gpu.store(mine + D / 2, dq.b.x[i]);
      gpu.store(mine + D, dk.a.x[i]), gpu.store(mine + (D + D / 2), dk.b.x[i]);
    }
    gpu.sync();
    for (std::int64_t c = gpu.thread(); c < 2 * D; c += kThreads) {
      float total = 0;
      for (std::int64_t g = 0; g < groups; ++g) total += gpu.load(sums + (g * 2 * D + c));
      gpu.store(partial + gpu.block() * 2 * D + c, total);
    }
  }

 private:
  // Items that are not there are zeros, and add nothing.
  SPILLWAY_GPU void norm_backward(const Gpu& gpu, const Halves<n>& x, const Halves<n>& weight, bool is_query, Halves<n>& dy,
                                  Halves<n>& dq, Halves<n>& dk) const {
    const float rstd = of.rstd(gpu, x);
    float along = 0;
    for (int i = 0; i < n; ++i) {
      along += dy.a.x[i] * weight.a.x[i] * x.a.x[i] * rstd + dy.b.x[i] * weight.b.x[i] * x.b.x[i] * rstd;
      const float a = dy.a.x[i] * x.a.x[i] * rstd, b = dy.b.x[i] * x.b.x[i] * rstd;
      // There is no branch on which of the sums it is, so that they stay in registers.
      dq.a.x[i] += is_query ? a : 0.0f, dq.b.x[i] += is_query ? b : 0.0f;
      dk.a.x[i] += is_query ? 0.0f : a, dk.b.x[i] += is_query ? 0.0f : b;
    }
    along = of.sum_of_head(gpu, along) / static_cast<float>(of.shape.dimension);
    for (int i = 0; i < n; ++i) {
      dy.a.x[i] = rstd * (dy.a.x[i] * weight.a.x[i] - x.a.x[i] * rstd * along);
      dy.b.x[i] = rstd * (dy.b.x[i] * weight.b.x[i] - x.b.x[i] * rstd * along);
    }
  }
};

}  // namespace spillway::cuda
