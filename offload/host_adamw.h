// AdamW on the host: one fused pass over the state of a run of parameters, for the four forms of stored state.
// Not here: the norm (optimizer_ops.h), the clip factor (operations.h), when an update runs (memory/passes/update_tasks.h).
//
// Legend: P elements of a run. Arrays are given from the run's first element.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "memory/base/bfloat16.h"
#include "memory/base/float16.h"
#include "memory/base/parallel.h"
#include "memory/plan/unit.h"
#include "offload/adamw_settings.h"

namespace spillway {

// --- The split master -----------------------------------------------------------------------------------------------------
// master bits = (high << 16) + low, modulo 2^32: every fp32 value comes back bit for bit. `high` is the master rounded to
// nearest, ties away from zero: the even rule would need low = +0x8000, which is not a signed 16-bit number. The high half of a
// few NaNs (0x7fff8000 and beyond) is no NaN; arithmetic on x86 produces none of them.

struct SplitMaster {
  BFloat16 high;
  std::int16_t low;
};
constexpr SplitMaster split_master(float master) {
  const auto bits = std::bit_cast<std::uint32_t>(master);
  return {{static_cast<std::uint16_t>((bits + 0x8000u) >> 16)}, static_cast<std::int16_t>(static_cast<std::uint16_t>(bits))};
}
constexpr float join_master(BFloat16 high, std::int16_t low) {
  return std::bit_cast<float>((static_cast<std::uint32_t>(high.bits) << 16) + static_cast<std::uint32_t>(std::int32_t{low}));
}

// --- State ----------------------------------------------------------------------------------------------------------------

template <typename Moment>
struct SplitState {
  BFloat16* high;     // [P]
  std::int16_t* low;  // [P]
  Moment* m;          // [P]
  Moment* v;          // [P]
};
template <typename Moment>
struct SplitSource {
  const BFloat16* high;     // [P]
  const std::int16_t* low;  // [P]
  const Moment* m;          // [P]
  const Moment* v;          // [P]
};
using ExactState = SplitState<float>;
using ExactSource = SplitSource<float>;
using CompactState = SplitState<BFloat16>;
using CompactSource = SplitSource<BFloat16>;

struct Fp32State {
  float* weight;  // [P]
  float* m;       // [P]
  float* v;       // [P]
};
struct Fp32Source {
  const float* weight;  // [P]
  const float* m;       // [P]
  const float* v;       // [P]
};

struct Fp16State {
  Float16* weight;  // [P] finite_float16(master)
  float* master;    // [P]
  float* m;         // [P]
  float* v;         // [P]
};
struct Fp16Source {     // the weight follows from the master
  const float* master;  // [P]
  const float* m;       // [P]
  const float* v;       // [P]
};

template <typename Moment>
constexpr SplitSource<Moment> source_of(const SplitState<Moment>& state) {
  return {state.high, state.low, state.m, state.v};
}
constexpr Fp32Source source_of(const Fp32State& state) { return {state.weight, state.m, state.v}; }
constexpr Fp16Source source_of(const Fp16State& state) { return {state.master, state.m, state.v}; }

// The arrays from `by` elements further on.
template <template <typename> typename Split, typename Moment>
constexpr Split<Moment> advanced(const Split<Moment>& s, std::int64_t by) {
  return {s.high + by, s.low + by, s.m + by, s.v + by};
}
constexpr Fp32Source advanced(const Fp32Source& s, std::int64_t by) { return {s.weight + by, s.m + by, s.v + by}; }
constexpr Fp32State advanced(const Fp32State& s, std::int64_t by) { return {s.weight + by, s.m + by, s.v + by}; }
constexpr Fp16Source advanced(const Fp16Source& s, std::int64_t by) { return {s.master + by, s.m + by, s.v + by}; }
constexpr Fp16State advanced(const Fp16State& s, std::int64_t by) { return {s.weight + by, s.master + by, s.m + by, s.v + by}; }

// --- The update -----------------------------------------------------------------------------------------------------------

// The constants that an element's arithmetic takes from the settings. They are computed in double, like the formulas with
// Python's numbers, then rounded once; host and device use the same.
struct AdamWConstants {
  float gradient_scale, beta1, one_minus_beta1, beta2, one_minus_beta2, decay, step_size, inverse_bias2, epsilon;
};
AdamWConstants constants_of(const AdamWSettings& settings, Decay decay);

// Elements [begin, begin + count) of a block. Stochastic rounding draws its numbers by `block` and the element's index in it, so
// a run may be cut anywhere without changing a bit.
struct AdamWRun {
  std::uint64_t block = 0;
  std::int64_t begin = 0, count = 0;
  Decay decay = Decay::applied;
};

// out = one step from `in` with gradient [P], by the calling thread. Each array of `out` is the same as that of `in`
// or overlaps no array of `in`. All arithmetic is fp32, without fused multiply-add, in this order, so that the bits
// are the same on every machine:
//   g *= gradient_scale;  m = b1 * m + (1 - b1) * g;  v = b2 * v + (1 - b2) * g * g;
//   w *= 1 - lr * weight_decay;  w -= (lr / (1 - b1^t)) * m / (sqrt(v * (1 / (1 - b2^t))) + eps)
// Factors that depend on the settings alone are computed in double and rounded once. Each element is left with only the last of
// the divisions, because three of them would cost the compact form more than its memory traffic.
// In compact form w is updated by m and v as computed, and they are then stored in bf16 by stochastic rounding.
void host_adamw(const AdamWSettings& settings, const AdamWRun& run, const ExactSource& in, const float* gradient,
                const ExactState& out);
void host_adamw(const AdamWSettings& settings, const AdamWRun& run, const ExactSource& in, const BFloat16* gradient,
                const ExactState& out);
void host_adamw(const AdamWSettings& settings, const AdamWRun& run, const CompactSource& in, const BFloat16* gradient,
                const CompactState& out);
void host_adamw(const AdamWSettings& settings, const AdamWRun& run, const Fp32Source& in, const float* gradient,
                const Fp32State& out);
void host_adamw(const AdamWSettings& settings, const AdamWRun& run, const Fp16Source& in, const float* gradient,
                const Fp16State& out);

// Elements that one thread takes at a time: their state and gradient fit the second-level cache in every form.
inline constexpr std::int64_t kAdamWChunk = 1 << 14;

// The same, by all threads of a pool.
template <typename Source, typename Gradient, typename State>
void host_adamw(const ThreadPool& pool, const AdamWSettings& settings, const AdamWRun& run, const Source& in,
                const Gradient* gradient, const State& out) {
  pool.parallel_for((run.count + kAdamWChunk - 1) / kAdamWChunk, [&](std::int64_t task, int) {
    const std::int64_t by = task * kAdamWChunk;
    AdamWRun part = run;
    part.begin += by;
    part.count = std::min(kAdamWChunk, run.count - by);
    host_adamw(settings, part, advanced(in, by), gradient + by, advanced(out, by));
  });
}

}  // namespace spillway
