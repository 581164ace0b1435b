// Kernels that go over memory once: a thread has one pack of numbers.
//
// Legend: n rows, I MLP width, H hidden, T sequence length.
#pragma once

#include <cmath>
#include <cstdint>

#include "models/activation.h"
#include "models/cuda/partial_sums.h"
#include "models/cuda/vectors.cuh"

namespace spillway::cuda {

inline constexpr int kPointwiseThreads = 256;

// A place that may move with a word of the device's memory.
template <typename T>
struct Moving {
  const T* base = nullptr;
  const std::int64_t* word = nullptr;  // null: it stays
  std::int64_t stride = 0;             // elements per unit of the word
  SPILLWAY_GPU const T* at(const Gpu& gpu) const { return word == nullptr ? base : base + gpu.load(word) * stride; }
};

// --- activations ----------------------------------------------------------------------------------------------------------

struct ValueAndSlope {
  float value, slope;
};

template <Activation activation>
SPILLWAY_GPU ValueAndSlope activate(float x) {
  if constexpr (activation == Activation::silu) {
    const float s = 1.0f / (1.0f + expf(-x));
    return {x * s, s * (1.0f + x * (1.0f - s))};
  } else if constexpr (activation == Activation::gelu_tanh) {
    constexpr float a = 0.7978845608028654f, b = 0.044715f;  // sqrt(2 / pi)
    const float t = tanhf(a * (x + b * x * x * x));
    return {0.5f * x * (1.0f + t), 0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * a * (1.0f + 3.0f * b * x * x)};
  } else if constexpr (activation == Activation::clamped_swiglu) {
    const float g = x > kSwigluLimit ? kSwigluLimit : x, s = 1.0f / (1.0f + expf(-kSwigluAlpha * g));
    return {g * s, x > kSwigluLimit ? 0.0f : s * (1.0f + kSwigluAlpha * g * (1.0f - s))};
  } else {
    constexpr float root_half = 0.7071067811865476f, density = 0.3989422804014327f;
    const float cdf = 0.5f * (1.0f + erff(x * root_half));
    return {x * cdf, cdf + x * density * expf(-0.5f * x * x)};
  }
}

// The other factor, by which a gate's value is multiplied.
template <Activation activation>
SPILLWAY_GPU ValueAndSlope factor_of(float up) {
  if constexpr (activation == Activation::clamped_swiglu)
    return up > kSwigluLimit    ? ValueAndSlope{1.0f + kSwigluLimit, 0.0f}
           : up < -kSwigluLimit ? ValueAndSlope{1.0f - kSwigluLimit, 0.0f}
                                : ValueAndSlope{1.0f + up, 1.0f};
  return {up, 1.0f};
}

// Swaps the order of 2n numbers in two packs: in turns, or one pack of gates and one of ups.
template <int n>
SPILLWAY_GPU void take_apart(Floats<n>& gates, Floats<n>& ups) {
  const Floats<n> first = gates, second = ups;
  for (int j = 0; j < n; ++j) {
    gates.x[j] = 2 * j < n ? first.x[2 * j % n] : second.x[2 * j % n];
    ups.x[j] = 2 * j + 1 < n ? first.x[(2 * j + 1) % n] : second.x[(2 * j + 1) % n];
  }
}
template <int n>
SPILLWAY_GPU void put_together(Floats<n>& gates, Floats<n>& ups) {
  const Floats<n> of_gates = gates, of_ups = ups;
  for (int j = 0; j < n; ++j) {
    gates.x[j] = j % 2 == 0 ? of_gates.x[j / 2] : of_ups.x[j / 2];
    ups.x[j] = (n + j) % 2 == 0 ? of_gates.x[(n + j) / 2] : of_ups.x[(n + j) / 2];
  }
}

// Offsets of the columns of pack `i` of h [n, I]: in h, and in [n, I] or [n, gate I | up I]. Where gates and ups alternate, the
// two are the halves of one stretch.
struct PackOfRow {
  std::int64_t of_h, inner, outer;
  template <int n, Activation activation>
  static SPILLWAY_GPU PackOfRow at(std::int64_t i, std::int64_t columns, bool gated) {
    const std::int64_t packs = columns / n, row = i / packs, column = i % packs * n,
                       inner = row * (gated ? 2 : 1) * columns + column;
    if constexpr (activation == Activation::clamped_swiglu) return {row * columns + column, inner + column, inner + column + n};
    return {row * columns + column, inner, inner + columns};
  }
};

template <typename T, int n, Activation activation>
struct Activate {
  static constexpr int kThreads = kPointwiseThreads;
  std::int64_t packs = 0, columns = 0;
  bool gated = false;
  const T* up = nullptr;
  T* h = nullptr;

  SPILLWAY_GPU void operator()(const Gpu& gpu) const {
    const std::int64_t i = gpu.block() * kThreads + gpu.thread();
    if (i >= packs) return;
    const PackOfRow at = PackOfRow::at<n, activation>(i, columns, gated);
    auto x = load_floats<T, n>(gpu, up + at.inner);
    Floats<n> factor;
    if (gated) factor = load_floats<T, n>(gpu, up + at.outer);
    if constexpr (activation == Activation::clamped_swiglu) take_apart<n>(x, factor);
    for (int j = 0; j < n; ++j) x.x[j] = activate<activation>(x.x[j]).value;
    if (gated) {
      for (int j = 0; j < n; ++j) x.x[j] *= factor_of<activation>(factor.x[j]).value;
    }
    store_floats<T, n>(gpu, h + at.of_h, x);
  }
};

// Computes dup, and h again. The thread that has a pack reads it before writing it: dup may be up, and h may be dh.
template <typename T, int n, Activation activation>
struct ActivateBackward {
  static constexpr int kThreads = kPointwiseThreads;
  std::int64_t packs = 0, columns = 0;
  bool gated = false;
  const T *dh = nullptr, *up = nullptr;
  T *dup = nullptr, *h = nullptr;

  SPILLWAY_GPU void operator()(const Gpu& gpu) const {
    const std::int64_t i = gpu.block() * kThreads + gpu.thread();
    if (i >= packs) return;
    const PackOfRow at = PackOfRow::at<n, activation>(i, columns, gated);
    const auto given = load_floats<T, n>(gpu, dh + at.of_h);
    auto x = load_floats<T, n>(gpu, up + at.inner);
    Floats<n> factor, inner, outer, again;
    if (gated) factor = load_floats<T, n>(gpu, up + at.outer);
    if constexpr (activation == Activation::clamped_swiglu) take_apart<n>(x, factor);
    for (int j = 0; j < n; ++j) {
      const ValueAndSlope a = activate<activation>(x.x[j]);
      const ValueAndSlope f = gated ? factor_of<activation>(factor.x[j]) : ValueAndSlope{1.0f, 0.0f};
      inner.x[j] = given.x[j] * f.value * a.slope;
      outer.x[j] = given.x[j] * a.value * f.slope;
      again.x[j] = a.value * f.value;
    }
    if constexpr (activation == Activation::clamped_swiglu) put_together<n>(inner, outer);
    store_floats<T, n>(gpu, dup + at.inner, inner);
    if (gated) store_floats<T, n>(gpu, dup + at.outer, outer);
    store_floats<T, n>(gpu, h + at.of_h, again);
  }
};

// --- copies ---------------------------------------------------------------------------------------------------------------

// y = factor * x, from one type to another.
template <typename From, typename To, int n>
struct Scale {
  static constexpr int kThreads = kPointwiseThreads;
  std::int64_t packs = 0;
  float factor = 1;
  const From* x = nullptr;
  To* y = nullptr;

  SPILLWAY_GPU void operator()(const Gpu& gpu) const {
    const std::int64_t i = gpu.block() * kThreads + gpu.thread();
    if (i >= packs) return;
    auto floats = load_floats<From, n>(gpu, x + i * n);
    for (int j = 0; j < n; ++j) floats.x[j] *= factor;
    store_floats<To, n>(gpu, y + i * n, floats);
  }
};

// sums = residual + bias, as far as these are given, in fp32; a product is added afterwards.
template <typename T, int n>
struct BeginSums {
  static constexpr int kThreads = kPointwiseThreads;
  std::int64_t packs = 0, columns = 0;
  const T *bias = nullptr, *residual = nullptr;
  float* sums = nullptr;

  SPILLWAY_GPU void operator()(const Gpu& gpu) const {
    const std::int64_t i = gpu.block() * kThreads + gpu.thread();
    if (i >= packs) return;
    Floats<n> sum{};
    if (residual != nullptr) sum = load_floats<T, n>(gpu, residual + i * n);
    if (bias != nullptr) {
      const auto added = load_floats<T, n>(gpu, bias + i * n % columns);
      for (int j = 0; j < n; ++j) sum.x[j] += added.x[j];
    }
    store_floats<float, n>(gpu, sums + i * n, sum);
  }
};

// Copies one row from where a word of the device says.
template <typename T>
struct CopyMoving {
  static constexpr int kThreads = kPointwiseThreads;
  std::int64_t elements = 0;
  Moving<T> from;
  T* to = nullptr;

  SPILLWAY_GPU void operator()(const Gpu& gpu) const {
    const std::int64_t i = gpu.block() * kThreads + gpu.thread();
    if (i < elements) gpu.store(to + i, gpu.load(from.at(gpu) + i));
  }
};

// x = cap * tanh(x / cap), in place.
template <typename T, int n>
struct Cap {
  static constexpr int kThreads = kPointwiseThreads;
  std::int64_t packs = 0;
  float cap = 0;
  T* x = nullptr;

  SPILLWAY_GPU void operator()(const Gpu& gpu) const {
    const std::int64_t i = gpu.block() * kThreads + gpu.thread();
    if (i >= packs) return;
    auto floats = load_floats<T, n>(gpu, x + i * n);
    for (int j = 0; j < n; ++j) floats.x[j] = cap * tanhf(floats.x[j] / cap);
    store_floats<T, n>(gpu, x + i * n, floats);
  }
};

// Copies rows of a wider matrix to where they belong in a cache: keys [context, width], then values.
template <typename T, int n>
struct KeepKeys {
  static constexpr int kThreads = kPointwiseThreads;
  std::int64_t rows = 0, width = 0, context = 0, k_stride = 0, v_stride = 0;
  const T *k = nullptr, *v = nullptr;
  const std::int64_t* position = nullptr;
  T* cache = nullptr;

  SPILLWAY_GPU void operator()(const Gpu& gpu) const {
    const std::int64_t i = gpu.block() * kThreads + gpu.thread(), packs = width / n;
    if (i >= rows * packs) return;
    const std::int64_t row = i / packs, column = i % packs * n, to = (gpu.load(position) + row) * width + column;
    store_floats<T, n>(gpu, cache + to, load_floats<T, n>(gpu, k + row * k_stride + column));
    store_floats<T, n>(gpu, cache + context * width + to, load_floats<T, n>(gpu, v + row * v_stride + column));
  }
};

// --- positions ------------------------------------------------------------------------------------------------------------

// x[i] += table[i % T], or table[i % T - first_key[i]].
template <typename T, int n>
struct AddPositions {
  static constexpr int kThreads = kPointwiseThreads;
  std::int64_t rows = 0, hidden = 0, sequence = 0;
  Moving<T> table;
  T* x = nullptr;
  const std::int32_t* first_key = nullptr;  // [rows]; null: a sequence is one document

  SPILLWAY_GPU void operator()(const Gpu& gpu) const {
    const std::int64_t i = gpu.block() * kThreads + gpu.thread(), packs = hidden / n, row = i / packs;
    if (i >= rows * packs) return;
    const std::int64_t position = row % sequence - (first_key == nullptr ? 0 : gpu.load(first_key + row));
    auto sum = load_floats<T, n>(gpu, x + i * n);
    const auto added = load_floats<T, n>(gpu, table.at(gpu) + position * hidden + i % packs * n);
    for (int j = 0; j < n; ++j) sum.x[j] += added.x[j];
    store_floats<T, n>(gpu, x + i * n, sum);
  }
};

// dtable[t] (=|+=) the sum of dx over the rows at position t, in their order; rows of the table behind the T-th get nothing.
template <typename T, int n>
struct AddPositionsBackward {
  static constexpr int kThreads = kPointwiseThreads;
  std::int64_t rows = 0, hidden = 0, sequence = 0, table_rows = 0;
  const T* dx = nullptr;
  float* dtable = nullptr;
  bool adds = false;
  const std::int32_t* first_key = nullptr;  // [rows]; null: a sequence is one document

  SPILLWAY_GPU void operator()(const Gpu& gpu) const {
    const std::int64_t i = gpu.block() * kThreads + gpu.thread(), packs = hidden / n, position = i / packs;
    if (position >= table_rows) return;
    Floats<n> sum{};
    for (std::int64_t first = 0; first < rows; first += sequence) {
      const std::int64_t end = rows - first < sequence ? rows - first : sequence;
      for (std::int64_t t = position; t < end;) {
        const std::int64_t row = first + t, begin = first_key == nullptr ? 0 : gpu.load(first_key + row);
        if (begin + position == t) {
          const auto added = load_floats<T, n>(gpu, dx + row * hidden + i % packs * n);
          for (int j = 0; j < n; ++j) sum.x[j] += added.x[j];
        }
        // The next document that may have a row here is the row's own, or it begins behind the row.
        t = begin + position > t ? begin + position : t + 1 + position;
      }
    }
    sum_into(gpu, dtable + i * n, sum, adds);
  }
};

// --- dropout --------------------------------------------------------------------------------------------------------------

// y = mask(x), or y += mask(x); *key names the micro-batch, and 0 drops nothing. A pack lies in one group of the mask.
template <typename T, int n>
struct Dropout {
  static constexpr int kThreads = kPointwiseThreads;
  std::int64_t packs = 0;
  DropoutMask mask;
  std::uint32_t threshold = 0;
  float factor = 1;
  bool adds = false;
  const std::uint64_t* key = nullptr;
  const T* x = nullptr;
  T* y = nullptr;

  SPILLWAY_GPU void operator()(const Gpu& gpu) const {
    const std::int64_t i = gpu.block() * kThreads + gpu.thread();
    if (i >= packs) return;
    auto floats = load_floats<T, n>(gpu, x + i * n);
    const std::uint64_t micro_batch = gpu.load(key), first = static_cast<std::uint64_t>(i) * n;
    if (micro_batch != 0) {
      const RandomKey of = mask.key(micro_batch, first / kRandomKeyIndices);
      for (int j = 0; j < n; ++j) {
        const auto place = static_cast<std::uint32_t>(first % kRandomKeyIndices) + static_cast<std::uint32_t>(j);
        floats.x[j] = random_bits(of, place) >= threshold ? floats.x[j] * factor : 0.0f;
      }
    }
    if (adds) {
      const auto before = load_floats<T, n>(gpu, y + i * n);
      for (int j = 0; j < n; ++j) floats.x[j] += before.x[j];
    }
    store_floats<T, n>(gpu, y + i * n, floats);
  }
};

// --- sums of columns ------------------------------------------------------------------------------------------------------

// partial[block, columns]: sums of kSummedRows rows; each of eight warps has every eighth of them.
template <typename T, int n>
struct ColumnSums {
  static constexpr int kThreads = kPointwiseThreads, kWarps = kThreads / 32;
  static constexpr std::int64_t kColumns = 32 * n, kShared = kWarps * kColumns * sizeof(float);
  std::int64_t rows = 0, columns = 0;
  const T* dy = nullptr;
  float* partial = nullptr;  // [ceil(rows / kSummedRows), columns]

  SPILLWAY_GPU void operator()(const Gpu& gpu) const {
    const std::int64_t across = (columns + kColumns - 1) / kColumns, part = gpu.block() / across,
                       first = gpu.block() % across * kColumns, column = first + gpu.lane() * n;
    const std::int64_t end = (part + 1) * kSummedRows < rows ? (part + 1) * kSummedRows : rows;
    Floats<n> sum{};
    for (std::int64_t row = part * kSummedRows + gpu.warp(); row < end && column < columns; row += kWarps) {
      const auto added = load_floats<T, n>(gpu, dy + row * columns + column);
      for (int j = 0; j < n; ++j) sum.x[j] += added.x[j];
    }
    const auto sums = gpu.shared<float>();
    for (int j = 0; j < n; ++j) gpu.store(sums + (gpu.warp() * kColumns + j * 32 + gpu.lane()), sum.x[j]);
    gpu.sync();
    // Columns are read in the order in which they lie in shared memory, so that no bank is asked twice.
    for (std::int64_t i = gpu.thread(); i < kColumns; i += kThreads) {
      const std::int64_t c = first + i % 32 * n + i / 32;
      if (c >= columns) continue;
      float total = 0;
      for (int w = 0; w < kWarps; ++w) total += gpu.load(sums + (w * kColumns + i));
      gpu.store(partial + part * columns + c, total);
    }
  }
};

}  // namespace spillway::cuda
