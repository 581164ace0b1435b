// Rows of a looked-up block that a step's tokens touch, whose gradients are kept apart from the block's: their sums, their
// squares, and the update of the block that takes them. The host's bits exactly (row_ops.h). A row lies where its token first
// stands among the step's; by which place that is, the host has noted.
//
// Legend: n rows (tokens) of a micro-batch, N of a step, H elements of a row, P parameters of a run.
#pragma once

#include "memory/plan.h"
#include "models/cuda/lookup.cuh"
#include "offload/cuda/adamw.cuh"
#include "offload/cuda/squares.cuh"

namespace spillway::cuda {

// sums[first place of the token] += factor * dx, place after place of one micro-batch; it begins with zeros at the first place of
// all. Of each place `next` and `owner` as SamePlaces finds them, of all tokens and without padding.
template <typename T, int n>
struct TouchedSums {
  static constexpr int kThreads = kPointwiseThreads;
  std::int64_t rows = 0, hidden = 0, begin = 0;  // n, H; of the micro-batch in the step
  float factor = 1;
  std::int64_t padding = -1;                             // a token whose row gets zeros
  const std::int32_t* tokens = nullptr;                  // [n]
  const std::int32_t* first = nullptr;                   // [n]: the first place of its token, in the step
  const std::int32_t *next = nullptr, *owner = nullptr;  // [n]
  const T* dx = nullptr;                                 // [n, H]
  float* sums = nullptr;                                 // [N, H]

  SPILLWAY_GPU void operator()(const Gpu& gpu) const {
    const std::int64_t i = gpu.block() * kThreads + gpu.thread(), packs = hidden / n, row = i / packs, column = i % packs * n;
    if (row >= rows || gpu.load(owner + row) == 0) return;
    const std::int64_t place = gpu.load(first + row);
    const float its_factor = gpu.load(tokens + row) == padding ? 0.0f : factor;
    float* const to = sums + place * hidden + column;
    Floats<n> sum{};
    if (place != begin + row) sum = load_sums<n>(gpu, to);
    for (std::int64_t at = row; at < rows; at = gpu.load(next + at)) {
      const auto added = load_floats<T, n>(gpu, dx + at * hidden + column);
      for (int k = 0; k < n; ++k) sum.x[k] = Gpu::add(sum.x[k], Gpu::multiply(its_factor, added.x[k]));
    }
    store_sums(gpu, to, sum);
  }
};

// Rows of a table's whole gradient, its tokens from `first_token` on, to where they are kept apart.
template <int n>
struct KeepRowsApart {
  static constexpr int kThreads = kPointwiseThreads;
  std::int64_t rows = 0, hidden = 0, first_token = 0;
  const TouchedRow* touched = nullptr;  // [rows], of the table
  const float* gradient = nullptr;      // [tokens of the table, H]
  float* apart = nullptr;               // [N, H]

  SPILLWAY_GPU void operator()(const Gpu& gpu) const {
    const std::int64_t i = gpu.block() * kThreads + gpu.thread(), packs = hidden / n, row = i / packs, column = i % packs * n;
    if (row >= rows) return;
    const TouchedRow of = gpu.load(reinterpret_cast<const Pack<TouchedRow, 1>*>(touched + row)).x[0];
    store_sums(gpu, apart + of.place * hidden + column, load_sums<n>(gpu, gradient + (of.token - first_token) * hidden + column));
  }
};

// sums += what the head adds, if it does; they go where they wait for their update, rounded in compact form; and their squares,
// by nodes of a row, the largest that rows are whole ones of (row_node()), but no larger than a stretch: a row's are one behind
// the other. A warp has a stretch of a row. `vectors`: rows are whole packs of four, and aligned for them.
template <bool rounds, bool vectors>
struct FinishRows {
  static constexpr int kThreads = 256, kWarps = kThreads / 32;
  using Waiting = std::conditional_t<rounds, BFloat16, float>;
  std::int64_t rows = 0, hidden = 0, node = 0;
  const TouchedRow* touched = nullptr;              // [rows]
  const float *sums = nullptr, *by_head = nullptr;  // [N, H]; by_head: null where no head adds
  Waiting* waiting = nullptr;                       // [N, H]
  double* squares = nullptr;  // [rows, H / node], or, where a head adds, [first row's and others of the table, H / node]

  SPILLWAY_GPU void operator()(const Gpu& gpu) const {
    const std::int64_t stretches = (hidden + kSquareStretch - 1) / kSquareStretch, item = gpu.block() * kWarps + gpu.warp();
    const std::int64_t row = item / stretches, stretch = item % stretches * kSquareStretch;
    if (row >= rows) return;  // all lanes of the warp
    const TouchedRow of = gpu.load(reinterpret_cast<const Pack<TouchedRow, 1>*>(touched + row)).x[0];
    const std::int64_t begin = of.place * hidden, squares_row = by_head != nullptr ? of.token : row;
    square_stretch(
        gpu, node, [&](int pack) { return finished(gpu, begin, stretch + pack * 4); },
        [&](std::int64_t first, double sum) {
          if (stretch + first < hidden) gpu.store(squares + (squares_row * hidden + stretch + first) / node, sum);
        });
  }

 private:
  SPILLWAY_GPU Floats<4> finished(const Gpu& gpu, std::int64_t begin, std::int64_t column) const {
    Floats<4> pack{};
    if constexpr (vectors) {
      if (column < hidden) pack = finished_at<4>(gpu, begin + column);
    } else {
      for (int i = 0; i < 4; ++i) {
        if (column + i < hidden) pack.x[i] = finished_at<1>(gpu, begin + column + i).x[0];
      }
    }
    return pack;
  }
  template <int n>
  SPILLWAY_GPU Floats<n> finished_at(const Gpu& gpu, std::int64_t at) const {
    auto sum = load_floats<float, n>(gpu, sums + at);
    if (by_head != nullptr) {
      const auto added = load_floats<float, n>(gpu, by_head + at);
      for (int i = 0; i < n; ++i) sum.x[i] = Gpu::add(sum.x[i], added.x[i]);
    }
    if constexpr (rounds) {
      for (int i = 0; i < n; ++i) sum.x[i] = to_float(BFloat16::from_float(sum.x[i]));
    }
    store_floats<Waiting, n>(gpu, waiting + at, sum);
    return sum;
  }
};

// Of each row of a table, its tokens from `first` on, the place of its gradient, or -1: a thread looks for its row among those
// that are touched, which are by token.
struct PlacesOfRows {
  static constexpr int kThreads = 256;
  std::int64_t first = 0, rows = 0, touched_count = 0;
  const TouchedRow* touched = nullptr;
  std::int32_t* places = nullptr;  // [rows]

  SPILLWAY_GPU void operator()(const Gpu& gpu) const {
    const std::int64_t row = gpu.block() * kThreads + gpu.thread();
    if (row >= rows) return;
    std::int64_t low = 0, high = touched_count;
    while (low < high) {
      const std::int64_t middle = (low + high) / 2;
      if (at(gpu, middle).token < first + row) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    const bool is_there = low < touched_count && at(gpu, low).token == first + row;
    gpu.store(places + row, is_there ? at(gpu, low).place : -1);
  }

 private:
  SPILLWAY_GPU TouchedRow at(const Gpu& gpu, std::int64_t i) const {
    return gpu.load(reinterpret_cast<const Pack<TouchedRow, 1>*>(touched + i)).x[0];
  }
};

// AdamW on a run of a looked-up block. Rows that are apart are updated by their own gradients, or left as they are where these
// follow (`apart` is null); all others by the block's, or by zeros where it has none.
template <typename State, typename Gradient, int n>
struct AdamWByRows {
  static constexpr int kThreads = kAdamWThreads;
  AdamWConstants constants;
  Draws draws;
  std::int64_t begin = 0, count = 0, hidden = 0;
  StateArrays<State> state;
  const Gradient* gradient = nullptr;    // of the run
  const Gradient* apart = nullptr;       // [N, H]
  const std::int32_t* places = nullptr;  // of each row of the block

  SPILLWAY_GPU void operator()(const Gpu& gpu) const {
    const std::int64_t i = (gpu.block() * kThreads + gpu.thread()) * n;
    if (i >= count) return;
    const std::int64_t row = (begin + i) / hidden, column = (begin + i) % hidden;
    const std::int32_t place = gpu.load(places + row);
    if (place >= 0 && apart == nullptr) return;
    Floats<n> g{};
    if (place >= 0) {
      g = load_floats<Gradient, n>(gpu, apart + place * hidden + column);
    } else if (gradient != nullptr) {
      g = load_floats<Gradient, n>(gpu, gradient + i);
    }
    state.step(gpu, constants, draws, i, begin + i, g);
  }
};

// Enqueues it.
template <typename State, typename Gradient>
void device_adamw_by_rows(Queue& queue, const AdamWSettings& settings, const AdamWRun& run, const State& state,
                          const Gradient* gradient, const Gradient* apart, const std::int32_t* places, std::int64_t hidden) {
  if (run.count == 0) return;
  const Draws draws{settings.seed, static_cast<std::uint64_t>(settings.step), run.block};
  const auto start = [&]<int n>(std::integral_constant<int, n>) {
    launch(queue, {(run.count / n + kAdamWThreads - 1) / kAdamWThreads},
           AdamWByRows<State, Gradient, n>{
               constants_of(settings, run.decay), draws, run.begin, run.count, hidden, {state}, gradient, apart, places});
  };
  constexpr int wide = kWidestOfState<State>;
  const bool fits = run.count % wide == 0 && run.begin % wide == 0 && hidden % wide == 0 && is_aligned(state, gradient, apart);
  fits ? start(std::integral_constant<int, wide>()) : start(std::integral_constant<int, 1>());
}
// And the squares of touched rows.
template <bool rounds>
void device_finish_rows(Queue& queue, const FinishRows<rounds, true>& of) {
  if (of.rows == 0) return;
  const std::int64_t items = of.rows * ((of.hidden + kSquareStretch - 1) / kSquareStretch),
                     blocks = (items + of.kWarps - 1) / of.kWarps;
  const auto is_aligned = [](const auto* array) { return reinterpret_cast<std::uintptr_t>(array) % 16 == 0; };
  if (of.hidden % 4 == 0 && is_aligned(of.sums) && is_aligned(of.by_head) && is_aligned(of.waiting)) {
    launch(queue, {blocks}, of);
  } else {
    launch(queue, {blocks},
           FinishRows<rounds, false>{of.rows, of.hidden, of.node, of.touched, of.sums, of.by_head, of.waiting, of.squares});
  }
}

}  // namespace spillway::cuda
