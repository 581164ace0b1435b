#include "offload/host_adamw.h"

#include "models/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "offload/host_adamw.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "memory/error.h"
#include "memory/random.h"
#include "models/cpu/simd-inl.h"

#ifndef SPILLWAY_OFFLOAD_HOST_ADAMW_TABLE
#define SPILLWAY_OFFLOAD_HOST_ADAMW_TABLE
namespace spillway {

struct AdamWConstants {
  float gradient_scale, beta1, one_minus_beta1, beta2, one_minus_beta2, decay, step_size, inverse_bias2, epsilon;
};

// A piece of a run whose elements share the upper 32 bits of their index.
struct AdamWChunk {
  RandomKey key;
  std::uint32_t first;  // lower 32 bits of the first element's index
  std::int64_t count;
};

// One instruction set's kernels.
struct AdamWKernels {
  void (*exact)(const AdamWConstants&, const AdamWChunk&, const ExactSource&, const float*, const ExactState&);
  void (*exact_bf16)(const AdamWConstants&, const AdamWChunk&, const ExactSource&, const BFloat16*, const ExactState&);
  void (*compact)(const AdamWConstants&, const AdamWChunk&, const CompactSource&, const BFloat16*, const CompactState&);
  void (*fp32)(const AdamWConstants&, const AdamWChunk&, const Fp32Source&, const float*, const Fp32State&);
};

}  // namespace spillway
#endif

HWY_BEFORE_NAMESPACE();
namespace spillway {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;
namespace simd = ops::HWY_NAMESPACE;
using simd::Float;
using simd::Part;
using simd::splat;
using simd::Whole;

using Bits = hn::RebindToUnsigned<simd::FloatTag>;
using Halves = hn::Rebind<std::uint16_t, simd::FloatTag>;
using SignedHalves = hn::Rebind<std::int16_t, simd::FloatTag>;

// --- the master -----------------------------------------------------------------------------------------------------------

HWY_INLINE Float load_master(const BFloat16* high, const std::int16_t* low, Whole) {
  const Bits d32;
  const auto upper = hn::ShiftLeft<16>(hn::PromoteTo(d32, hn::LoadU(Halves(), reinterpret_cast<const std::uint16_t*>(high))));
  const hn::RebindToSigned<simd::FloatTag> di;
  const auto lower = hn::BitCast(d32, hn::PromoteTo(di, hn::LoadU(SignedHalves(), low)));
  return hn::BitCast(simd::FloatTag(), hn::Add(upper, lower));
}
HWY_INLINE Float load_master(const BFloat16* high, const std::int16_t* low, Part part) {
  BFloat16 highs[simd::kMaxLanes] = {};
  std::int16_t lows[simd::kMaxLanes] = {};
  std::copy_n(high, part.count, highs);
  std::copy_n(low, part.count, lows);
  return load_master(highs, lows, Whole{});
}

HWY_INLINE void store_master(Float master, BFloat16* high, std::int16_t* low, Whole) {
  const Bits d32;
  const auto bits = hn::BitCast(d32, master);
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Set(d32, 0x8000)));
  hn::StoreU(hn::TruncateTo(Halves(), rounded), Halves(), reinterpret_cast<std::uint16_t*>(high));
  hn::StoreU(hn::TruncateTo(Halves(), bits), Halves(), reinterpret_cast<std::uint16_t*>(low));
}
HWY_INLINE void store_master(Float master, BFloat16* high, std::int16_t* low, Part part) {
  BFloat16 highs[simd::kMaxLanes];
  std::int16_t lows[simd::kMaxLanes];
  store_master(master, highs, lows, Whole{});
  std::copy_n(highs, part.count, high);
  std::copy_n(lows, part.count, low);
}

template <typename Moment, typename PartOrWhole>
HWY_INLINE Float load_weight(const SplitSource<Moment>& in, std::int64_t i, PartOrWhole part) {
  return load_master(in.high + i, in.low + i, part);
}
template <typename PartOrWhole>
HWY_INLINE Float load_weight(const Fp32Source& in, std::int64_t i, PartOrWhole part) {
  return simd::load(in.weight + i, part);
}
template <typename Moment, typename PartOrWhole>
HWY_INLINE void store_weight(Float w, const SplitState<Moment>& out, std::int64_t i, PartOrWhole part) {
  store_master(w, out.high + i, out.low + i, part);
}
template <typename PartOrWhole>
HWY_INLINE void store_weight(Float w, const Fp32State& out, std::int64_t i, PartOrWhole part) {
  simd::store(w, out.weight + i, part);
}

// --- stochastic rounding --------------------------------------------------------------------------------------------------

// random_bits() of each lane's index.
HWY_INLINE hn::Vec<Bits> random_lanes(RandomKey key, hn::Vec<Bits> index) {
  const Bits d;
  auto x = hn::Xor(index, hn::Set(d, key.first));
  x = hn::Mul(hn::Xor(x, hn::ShiftRight<16>(x)), hn::Set(d, kMixFirst));
  x = hn::Mul(hn::Add(hn::Xor(x, hn::ShiftRight<15>(x)), hn::Set(d, key.second)), hn::Set(d, kMixSecond));
  return hn::Xor(x, hn::ShiftRight<16>(x));
}

// Up with a chance equal to the part cut off, given 16 random bits. Infinity stays; a NaN stays one.
HWY_INLINE void store_rounded(Float value, hn::Vec<Bits> random, BFloat16* p, Whole) {
  const Bits d;
  const auto bits = hn::BitCast(d, value);
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, random));
  const auto nan = hn::Or(hn::ShiftRight<16>(bits), hn::Set(d, 0x40));
  const auto high = hn::IfThenElse(hn::RebindMask(d, hn::IsNaN(value)), nan, rounded);
  hn::StoreU(hn::TruncateTo(Halves(), high), Halves(), reinterpret_cast<std::uint16_t*>(p));
}
HWY_INLINE void store_rounded(Float value, hn::Vec<Bits> random, BFloat16* p, Part part) {
  BFloat16 row[simd::kMaxLanes];
  store_rounded(value, random, row, Whole{});
  std::copy_n(row, part.count, p);
}

template <typename PartOrWhole>
HWY_INLINE void store_moments(Float m, Float v, RandomKey, hn::Vec<Bits>, float* m_out, float* v_out, PartOrWhole part) {
  simd::store(m, m_out, part);
  simd::store(v, v_out, part);
}
template <typename PartOrWhole>
HWY_INLINE void store_moments(Float m, Float v, RandomKey key, hn::Vec<Bits> index, BFloat16* m_out, BFloat16* v_out, PartOrWhole part) {
  const auto random = random_lanes(key, index);
  store_rounded(m, hn::And(random, hn::Set(Bits(), 0xffff)), m_out, part);
  store_rounded(v, hn::ShiftRight<16>(random), v_out, part);
}

// --- the update -----------------------------------------------------------------------------------------------------------

template <typename Source, typename Gradient, typename State>
void update(const AdamWConstants& k, const AdamWChunk& chunk, const Source& source, const Gradient* gradient, const State& state) {
  // Copies, which a vector's store cannot alias: through the references they would be loaded again for each vector.
  const Source in = source;
  const State out = state;
  const RandomKey key = chunk.key;
  const Float scale = splat(k.gradient_scale), beta1 = splat(k.beta1), beta2 = splat(k.beta2);
  const Float one_minus_beta1 = splat(k.one_minus_beta1), one_minus_beta2 = splat(k.one_minus_beta2);
  const Float decay = splat(k.decay), step_size = splat(k.step_size), inverse_bias2 = splat(k.inverse_bias2), epsilon = splat(k.epsilon);
  // Iota goes through memory, so it is taken once.
  const auto indices = hn::Iota(Bits(), chunk.first);
  simd::for_vectors(chunk.count, [&](std::int64_t i, auto part) HWY_ATTR {
    const Float g = hn::Mul(simd::load(gradient + i, part), scale);
    const Float m = hn::Add(hn::Mul(beta1, simd::load(in.m + i, part)), hn::Mul(one_minus_beta1, g));
    const Float v = hn::Add(hn::Mul(beta2, simd::load(in.v + i, part)), hn::Mul(hn::Mul(one_minus_beta2, g), g));
    const Float denominator = hn::Add(hn::Sqrt(hn::Mul(v, inverse_bias2)), epsilon);
    const Float step = hn::Div(hn::Mul(step_size, m), denominator);
    const Float w = hn::Sub(hn::Mul(load_weight(in, i, part), decay), step);
    store_weight(w, out, i, part);
    const auto index = hn::Add(indices, hn::Set(Bits(), static_cast<std::uint32_t>(i)));
    store_moments(m, v, key, index, out.m + i, out.v + i, part);
  });
}

}  // namespace
AdamWKernels adamw_kernels() {
  return {update<ExactSource, float, ExactState>, update<ExactSource, BFloat16, ExactState>,
          update<CompactSource, BFloat16, CompactState>, update<Fp32Source, float, Fp32State>};
}
}  // namespace HWY_NAMESPACE
}  // namespace spillway
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace spillway {

HWY_EXPORT(adamw_kernels);

namespace {

// Chunks are cut at multiples of this index of the block, whatever the run: so no chunk crosses 2^32, where the key changes.
constexpr std::int64_t kChunkElements = 1 << 16;

// Formed in double, as the formulas are with Python's numbers, then rounded once.
AdamWConstants constants_of(const AdamWSettings& s, Decay decay) {
  const auto t = static_cast<double>(s.step);
  return {.gradient_scale = static_cast<float>(s.gradient_scale),
          .beta1 = static_cast<float>(s.beta1),
          .one_minus_beta1 = static_cast<float>(1 - s.beta1),
          .beta2 = static_cast<float>(s.beta2),
          .one_minus_beta2 = static_cast<float>(1 - s.beta2),
          .decay = decay == Decay::applied ? static_cast<float>(1 - s.lr * s.weight_decay) : 1.0f,
          .step_size = static_cast<float>(s.lr / (1 - std::pow(s.beta1, t))),
          .inverse_bias2 = static_cast<float>(1 / (1 - std::pow(s.beta2, t))),
          .epsilon = static_cast<float>(s.epsilon)};
}

template <typename Moment>
SplitSource<Moment> advanced(const SplitSource<Moment>& s, std::int64_t by) {
  return {s.high + by, s.low + by, s.m + by, s.v + by};
}
template <typename Moment>
SplitState<Moment> advanced(const SplitState<Moment>& s, std::int64_t by) {
  return {s.high + by, s.low + by, s.m + by, s.v + by};
}
Fp32Source advanced(const Fp32Source& s, std::int64_t by) { return {s.weight + by, s.m + by, s.v + by}; }
Fp32State advanced(const Fp32State& s, std::int64_t by) { return {s.weight + by, s.m + by, s.v + by}; }

template <typename Kernel, typename Source, typename Gradient, typename State>
void run_kernel(const ThreadPool& pool, Kernel kernel, const AdamWSettings& settings, const AdamWRun& run, const Source& in,
                const Gradient* gradient, const State& out) {
  SPILLWAY_CHECK(settings.step >= 1 && run.begin >= 0 && run.count >= 0, "step {}, elements {} + {}", settings.step, run.begin,
                 run.count);
  if (run.count == 0) return;
  const AdamWConstants constants = constants_of(settings, run.decay);
  const std::int64_t end = run.begin + run.count;
  const std::int64_t first_chunk = run.begin / kChunkElements, last_chunk = (end - 1) / kChunkElements;
  pool.parallel_for(last_chunk - first_chunk + 1, [&](std::int64_t task, int) {
    const std::int64_t begin = std::max(run.begin, (first_chunk + task) * kChunkElements);
    const std::int64_t stop = std::min(end, (first_chunk + task + 1) * kChunkElements);
    const auto index = static_cast<std::uint64_t>(begin);
    const AdamWChunk chunk{.key = random_key(settings.seed, static_cast<std::uint64_t>(settings.step), run.block, index >> 32),
                           .first = static_cast<std::uint32_t>(index),
                           .count = stop - begin};
    const std::int64_t by = begin - run.begin;
    kernel(constants, chunk, advanced(in, by), gradient + by, advanced(out, by));
  });
}

AdamWKernels best() { return HWY_DYNAMIC_DISPATCH(adamw_kernels)(); }

}  // namespace

void host_adamw(const ThreadPool& pool, const AdamWSettings& settings, const AdamWRun& run, const ExactSource& in,
                const float* gradient, const ExactState& out) {
  run_kernel(pool, best().exact, settings, run, in, gradient, out);
}
void host_adamw(const ThreadPool& pool, const AdamWSettings& settings, const AdamWRun& run, const ExactSource& in,
                const BFloat16* gradient, const ExactState& out) {
  run_kernel(pool, best().exact_bf16, settings, run, in, gradient, out);
}
void host_adamw(const ThreadPool& pool, const AdamWSettings& settings, const AdamWRun& run, const CompactSource& in,
                const BFloat16* gradient, const CompactState& out) {
  run_kernel(pool, best().compact, settings, run, in, gradient, out);
}
void host_adamw(const ThreadPool& pool, const AdamWSettings& settings, const AdamWRun& run, const Fp32Source& in,
                const float* gradient, const Fp32State& out) {
  run_kernel(pool, best().fp32, settings, run, in, gradient, out);
}

}  // namespace spillway
#endif
