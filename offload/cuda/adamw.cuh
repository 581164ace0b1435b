// AdamW on the device: exactly the host's bits (host_adamw.h has the formulas), for the four forms of state. Each operation is
// rounded by itself: Gpu::add() and its like are never fused.
// Not here: squares of the gradients (squares.cuh).
//
// Legend: P elements of a run. Arrays are given from the run's first element.
#pragma once

#include <bit>
#include <cstdint>

#include "memory/base/random.h"
#include "models/cuda/vectors.cuh"
#include "offload/host_adamw.h"

namespace spillway::cuda {

struct Element {
  float w, m, v;
};

SPILLWAY_GPU Element adamw(const AdamWConstants& k, float gradient, Element x) {
  const float g = Gpu::multiply(gradient, k.gradient_scale);
  x.m = Gpu::add(Gpu::multiply(k.beta1, x.m), Gpu::multiply(k.one_minus_beta1, g));
  x.v = Gpu::add(Gpu::multiply(k.beta2, x.v), Gpu::multiply(Gpu::multiply(k.one_minus_beta2, g), g));
  const float denominator = Gpu::add(Gpu::root(Gpu::multiply(x.v, k.inverse_bias2)), k.epsilon);
  x.w = Gpu::add(Gpu::multiply(x.w, k.decay), -Gpu::divide(Gpu::multiply(k.step_size, x.m), denominator));
  return x;
}

// The random numbers of a run: a function of seed, step, block and element.
struct Draws {
  std::uint64_t seed = 0, step = 0, block = 0;
  SPILLWAY_GPU std::uint32_t of(std::int64_t element) const {
    return random_bits(seed, step, block, static_cast<std::uint64_t>(element));
  }
};

inline constexpr int kAdamWThreads = 256;

// The arrays of a run's state (ExactState, CompactState, Fp32State or Fp16State), for access to some elements at a time.
template <typename State>
struct StateArrays {
  State of;
  using Moment = std::remove_pointer_t<decltype(State::m)>;
  static constexpr bool kIsCompact = std::is_same_v<Moment, BFloat16>;
  static constexpr bool kIsFp32 = std::is_same_v<State, Fp32State>, kIsFp16 = std::is_same_v<State, Fp16State>;

  // One step on elements i to i + n - 1 of the run; element i is `element` of its block.
  template <int n>
  SPILLWAY_GPU void step(const Gpu& gpu, const AdamWConstants& constants, const Draws& draws, std::int64_t i,
                         std::int64_t element, const Floats<n>& gradient) const {
    auto m = load_floats<Moment, n>(gpu, of.m + i), v = load_floats<Moment, n>(gpu, of.v + i);
    auto w = load_weights<n>(gpu, i);
    for (int j = 0; j < n; ++j) {
      const Element next = adamw(constants, gradient.x[j], {w.x[j], m.x[j], v.x[j]});
      w.x[j] = next.w, m.x[j] = next.m, v.x[j] = next.v;
    }
    store_weights(gpu, i, w);
    if constexpr (kIsCompact) {
      store_rounded(gpu, draws, i, element, m, v);
    } else {
      store_floats<Moment, n>(gpu, of.m + i, m), store_floats<Moment, n>(gpu, of.v + i, v);
    }
  }

 private:
  template <int n>
  SPILLWAY_GPU Floats<n> load_weights(const Gpu& gpu, std::int64_t i) const {
    if constexpr (kIsFp32) {
      return load_floats<float, n>(gpu, of.weight + i);
    } else if constexpr (kIsFp16) {
      return load_floats<float, n>(gpu, of.master + i);
    } else {
      const auto high = gpu.load(reinterpret_cast<const Pack<BFloat16, n>*>(of.high + i));
      const auto low = gpu.load(reinterpret_cast<const Pack<std::int16_t, n>*>(of.low + i));
      Floats<n> w;
      for (int j = 0; j < n; ++j) w.x[j] = join_master(high.x[j], low.x[j]);
      return w;
    }
  }
  template <int n>
  SPILLWAY_GPU void store_weights(const Gpu& gpu, std::int64_t i, const Floats<n>& w) const {
    if constexpr (kIsFp32) {
      store_floats<float, n>(gpu, of.weight + i, w);
    } else if constexpr (kIsFp16) {
      store_floats<float, n>(gpu, of.master + i, w);
      Pack<Float16, n> halves;
      for (int j = 0; j < n; ++j) halves.x[j] = finite_float16(w.x[j]);
      gpu.store(reinterpret_cast<Pack<Float16, n>*>(of.weight + i), halves);
    } else {
      Pack<BFloat16, n> high;
      Pack<std::int16_t, n> low;
      for (int j = 0; j < n; ++j) {
        const SplitMaster master = split_master(w.x[j]);
        high.x[j] = master.high, low.x[j] = master.low;
      }
      gpu.store(reinterpret_cast<Pack<BFloat16, n>*>(of.high + i), high);
      gpu.store(reinterpret_cast<Pack<std::int16_t, n>*>(of.low + i), low);
    }
  }
  // Stores moments rounded stochastically: up with a chance equal to the part cut off.
  template <int n>
  SPILLWAY_GPU void store_rounded(const Gpu& gpu, const Draws& draws, std::int64_t i, std::int64_t element, const Floats<n>& m,
                                  const Floats<n>& v) const {
    const auto rounded = [](float value, std::uint32_t draw) {
      return BFloat16{static_cast<std::uint16_t>((std::bit_cast<std::uint32_t>(value) + draw) >> 16)};
    };
    Pack<BFloat16, n> m_pack, v_pack;
    for (int j = 0; j < n; ++j) {
      const std::uint32_t random = draws.of(element + j);
      m_pack.x[j] = rounded(m.x[j], random & 0xffff), v_pack.x[j] = rounded(v.x[j], random >> 16);
    }
    gpu.store(reinterpret_cast<Pack<BFloat16, n>*>(of.m + i), m_pack);
    gpu.store(reinterpret_cast<Pack<BFloat16, n>*>(of.v + i), v_pack);
  }
};

// The kernel: one step in place, n elements a thread. Gradient: float or BFloat16.
template <typename State, typename Gradient, int n>
struct AdamW {
  static constexpr int kThreads = kAdamWThreads;
  AdamWConstants constants;
  Draws draws;
  std::int64_t begin = 0, count = 0;  // elements [begin, begin + count) of the block
  StateArrays<State> state;
  const Gradient* gradient = nullptr;

  SPILLWAY_GPU void operator()(const Gpu& gpu) const {
    const std::int64_t i = (gpu.block() * kThreads + gpu.thread()) * n;
    if (i < count) state.step(gpu, constants, draws, i, begin + i, load_floats<Gradient, n>(gpu, gradient + i));
  }
};

// Elements of a pack, whatever the gradient's type.
template <typename State>
inline constexpr int kWidestOfState = std::is_same_v<State, CompactState> ? 8 : 4;

// True when all arrays of a run begin at an address that is aligned for packs.
template <typename State>
bool is_aligned(const State& state, const auto*... others) {
  const auto is_aligned = [](const auto*... arrays) { return ((reinterpret_cast<std::uintptr_t>(arrays) % 16 == 0) && ...); };
  if constexpr (std::is_same_v<State, Fp32State>) {
    return is_aligned(state.weight, state.m, state.v, others...);
  } else if constexpr (std::is_same_v<State, Fp16State>) {
    return is_aligned(state.weight, state.master, state.m, state.v, others...);
  } else {
    return is_aligned(state.high, state.low, state.m, state.v, others...);
  }
}

// Enqueues one step in place, like host_adamw() with the same in and out; uses vectors where the arrays are aligned for them.
template <typename State, typename Gradient>
void device_adamw(Queue& queue, const AdamWSettings& settings, const AdamWRun& run, const State& state,
                  const Gradient* gradient) {
  if (run.count == 0) return;
  const Draws draws{settings.seed, static_cast<std::uint64_t>(settings.step), run.block};
  const auto start = [&]<int n>(std::integral_constant<int, n>) {
    launch(queue, {(run.count / n + kAdamWThreads - 1) / kAdamWThreads},
           AdamW<State, Gradient, n>{constants_of(settings, run.decay), draws, run.begin, run.count, {state}, gradient});
  };
  constexpr int wide = kWidestOfState<State>;
  run.count % wide == 0 && is_aligned(state, gradient) ? start(std::integral_constant<int, wide>())
                                                       : start(std::integral_constant<int, 1>());
}

}  // namespace spillway::cuda
