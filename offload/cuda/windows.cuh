// Rows that are fetched one by one, each in a window of its own (offload/fetched_rows.h): their update apart from that of their
// block, their weights to where a lookup takes them, and what windows that overlap have of each other. The host's bits exactly
// (row_ops.h: update_rows and update_touched, copy_rows, share_windows).
// Not here: which rows are where, which the host finds.
//
// Legend: N windows, H elements of a row.
#pragma once

#include "offload/cuda/adamw.cuh"

namespace spillway::cuda {

// A row in the windows of its state.
struct WindowedRow {
  std::uint64_t block = 0;
  std::int64_t element = 0;     // its first, in the block
  std::int64_t window = 0;      // of every array
  std::int64_t gradient = -1;   // its row among those that are kept apart; -1: it has one in a window, or none
  std::int32_t within[2] = {};  // bytes of a window before the row: of elements of 2 bytes, and of 4
  std::int32_t decays = 1;      // whether its weights do
  std::int32_t unused = 0;
};

// Windows of all arrays whose elements have as many bytes are as large.
struct Windows {
  std::byte* at = nullptr;
  Bytes each = 0;

  template <typename T>
  SPILLWAY_GPU T* row(const Gpu& gpu, const WindowedRow* of) const {
    return reinterpret_cast<T*>(at + gpu.load(&of->window) * each + gpu.load(&of->within[sizeof(T) == 4 ? 1 : 0]));
  }
};

// One step of each row, in its windows: m and v where State has them, `low` where it has one.
template <typename State, typename Gradient, int n>
struct AdamWOfWindows {
  static constexpr int kThreads = kAdamWThreads;
  AdamWConstants constants;  // where weights decay
  std::uint64_t seed = 0, step = 0;
  std::int64_t count = 0, hidden = 0;
  const WindowedRow* rows = nullptr;  // [count]
  Windows weight, low, m, v, gradients;
  const Gradient* apart = nullptr;  // [N, H]

  SPILLWAY_GPU void operator()(const Gpu& gpu) const {
    const std::int64_t i = gpu.block() * kThreads + gpu.thread(), packs = hidden / n, column = i % packs * n;
    if (i / packs >= count) return;
    const WindowedRow* const row = rows + i / packs;
    AdamWConstants of_row = constants;
    if (gpu.load(&row->decays) == 0) of_row.decay = 1.0f;
    const std::int64_t own = gpu.load(&row->gradient);
    Floats<n> g{};
    if (own >= 0) {
      g = load_floats<Gradient, n>(gpu, apart + own * hidden + column);
    } else if (gradients.at != nullptr) {
      g = load_floats<Gradient, n>(gpu, gradients.row<Gradient>(gpu, row) + column);
    }
    const Draws draws{seed, step, gpu.load(&row->block)};
    state_of(gpu, row).step(gpu, of_row, draws, column, gpu.load(&row->element) + column, g);
  }

 private:
  SPILLWAY_GPU StateArrays<State> state_of(const Gpu& gpu, const WindowedRow* row) const {
    using Moment = typename StateArrays<State>::Moment;
    if constexpr (StateArrays<State>::kIsSplit) {
      return {
          {weight.row<BFloat16>(gpu, row), low.row<std::int16_t>(gpu, row), m.row<Moment>(gpu, row), v.row<Moment>(gpu, row)}};
    } else {
      return {{weight.row<float>(gpu, row), m.row<float>(gpu, row), v.row<float>(gpu, row)}};
    }
  }
};

// The rows' weights, one after the other. T: as many bytes as a weight's.
template <typename T, int n>
struct CopyFromWindows {
  static constexpr int kThreads = kAdamWThreads;
  std::int64_t count = 0, hidden = 0;
  const WindowedRow* rows = nullptr;  // [count]
  Windows weight;
  T* to = nullptr;  // [count, H]

  SPILLWAY_GPU void operator()(const Gpu& gpu) const {
    const std::int64_t i = gpu.block() * kThreads + gpu.thread(), packs = hidden / n, column = i % packs * n;
    if (i / packs >= count) return;
    const T* const from = weight.row<T>(gpu, rows + i / packs) + column;
    gpu.store(reinterpret_cast<Pack<T, n>*>(to + i * n), gpu.load(reinterpret_cast<const Pack<T, n>*>(from)));
  }
};

// Parts of windows to where other windows have the same bytes. No part is both read and written.
struct WindowPart {
  std::int64_t from = 0, to = 0, count = 0;  // in elements of T
};
template <typename T>
struct ShareWindows {
  static constexpr int kThreads = 256;
  const WindowPart* parts = nullptr;  // a block each
  T* windows = nullptr;

  SPILLWAY_GPU void operator()(const Gpu& gpu) const {
    const WindowPart* const part = parts + gpu.block();
    const std::int64_t from = gpu.load(&part->from), to = gpu.load(&part->to), count = gpu.load(&part->count);
    for (std::int64_t i = gpu.thread(); i < count; i += kThreads) gpu.store(windows + to + i, gpu.load(windows + from + i));
  }
};

// Enqueues it; packs where rows are whole ones and all windows begin where packs may.
template <typename State, typename Gradient>
void device_adamw_of_windows(Queue& queue, const AdamWOfWindows<State, Gradient, 1>& of) {
  if (of.count == 0) return;
  constexpr int wide = kWidestOfState<State>;
  const auto blocks = [&](int n) { return (of.count * of.hidden / n + kAdamWThreads - 1) / kAdamWThreads; };
  const auto is_aligned = [](const auto* array) { return reinterpret_cast<std::uintptr_t>(array) % 16 == 0; };
  const auto are_aligned = [&](const auto&... windows) { return ((is_aligned(windows.at) && windows.each % 16 == 0) && ...); };
  const bool fits = of.hidden % 8 == 0 && is_aligned(of.apart) && are_aligned(of.weight, of.low, of.m, of.v, of.gradients);
  if (fits) {
    launch(queue, {blocks(wide)},
           AdamWOfWindows<State, Gradient, wide>{of.constants, of.seed, of.step, of.count, of.hidden, of.rows, of.weight, of.low,
                                                 of.m, of.v, of.gradients, of.apart});
  } else {
    launch(queue, {blocks(1)}, of);
  }
}

}  // namespace spillway::cuda
