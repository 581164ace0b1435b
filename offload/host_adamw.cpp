#include "offload/host_adamw.h"

#include "models/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "offload/host_adamw.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "memory/base/error.h"
#include "memory/base/random.h"
#include "models/cpu/simd-inl.h"

#ifndef SPILLWAY_OFFLOAD_HOST_ADAMW_TABLE
#define SPILLWAY_OFFLOAD_HOST_ADAMW_TABLE
namespace spillway {

// A piece of a run whose elements share a random key.
struct AdamWChunk {
  RandomKey key;
  std::uint32_t first;  // index of the first element among those of the key
  std::int64_t count;
};

// The kernels of one instruction set.
struct AdamWKernels {
  void (*exact)(const AdamWConstants&, const AdamWChunk&, const ExactSource&, const float*, const ExactState&);
  void (*exact_bf16)(const AdamWConstants&, const AdamWChunk&, const ExactSource&, const BFloat16*, const ExactState&);
  void (*compact)(const AdamWConstants&, const AdamWChunk&, const CompactSource&, const BFloat16*, const CompactState&);
  void (*fp32)(const AdamWConstants&, const AdamWChunk&, const Fp32Source&, const float*, const Fp32State&);
  void (*fp16)(const AdamWConstants&, const AdamWChunk&, const Fp16Source&, const float*, const Fp16State&);
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

// Prefetches each array kPrefetchBytes ahead: with five to nine streams this is 5 to 10 % faster than the hardware's own guesses.
// An address beyond the run's end does no harm.
constexpr std::uintptr_t kPrefetchBytes = 2560;
template <typename... T>
HWY_INLINE void prefetch(const T*... arrays) {
  (hwy::Prefetch(reinterpret_cast<const T*>(reinterpret_cast<std::uintptr_t>(arrays) + kPrefetchBytes)), ...);
}

// --- the formulas ---------------------------------------------------------------------------------------------------------

struct Formulas {
  HWY_INLINE explicit Formulas(const AdamWConstants& k)
      : scale(splat(k.gradient_scale)),
        beta1(splat(k.beta1)),
        one_minus_beta1(splat(k.one_minus_beta1)),
        beta2(splat(k.beta2)),
        one_minus_beta2(splat(k.one_minus_beta2)),
        decay(splat(k.decay)),
        step_size(splat(k.step_size)),
        inverse_bias2(splat(k.inverse_bias2)),
        epsilon(splat(k.epsilon)) {}

  HWY_INLINE void step(Float gradient, Float& w, Float& m, Float& v) const {
    const Float g = hn::Mul(gradient, scale);
    m = hn::Add(hn::Mul(beta1, m), hn::Mul(one_minus_beta1, g));
    v = hn::Add(hn::Mul(beta2, v), hn::Mul(hn::Mul(one_minus_beta2, g), g));
    const Float denominator = hn::Add(hn::Sqrt(hn::Mul(v, inverse_bias2)), epsilon);
    w = hn::Sub(hn::Mul(w, decay), hn::Div(hn::Mul(step_size, m), denominator));
  }

  Float scale, beta1, one_minus_beta1, beta2, one_minus_beta2, decay, step_size, inverse_bias2, epsilon;
};

// --- exact, fp32 and fp16: moments of 32 bits, a vector at a time -----------------------------------------------------------

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

// finite_float16() of each number, the same bits on every target.
HWY_INLINE hn::Vec<Bits> halves_of(Float x) {
  const Bits d;
  const auto bits = hn::BitCast(d, x), size = hn::And(bits, hn::Set(d, 0x7fffffffu));
  const auto sign = hn::And(hn::ShiftRight<16>(bits), hn::Set(d, 0x8000u));
  const auto odd = hn::And(hn::ShiftRight<13>(size), hn::Set(d, 1u));
  const auto normal = hn::Sub(hn::ShiftRight<13>(hn::Add(hn::Add(size, hn::Set(d, 0xfffu)), odd)), hn::Set(d, 112u << 10));
  const auto half = splat(0.5f);
  const auto small = hn::Sub(hn::BitCast(d, hn::Add(hn::BitCast(simd::FloatTag(), size), half)), hn::BitCast(d, half));
  auto rounded = hn::IfThenElse(hn::Lt(size, hn::Set(d, 0x38800000u)), small, normal);
  rounded = hn::IfThenElse(hn::Gt(size, hn::Set(d, 0x477fefffu)), hn::Set(d, 0x7bffu), rounded);
  rounded = hn::IfThenElse(hn::Gt(size, hn::Set(d, 0x7f7fffffu)), hn::Set(d, 0x7c00u), rounded);
  rounded = hn::IfThenElse(hn::Gt(size, hn::Set(d, 0x7f800000u)), hn::Set(d, 0x7e00u), rounded);
  return hn::Or(rounded, sign);
}
HWY_INLINE void store_half(Float x, Float16* to, Whole) {
  hn::StoreU(hn::TruncateTo(Halves(), halves_of(x)), Halves(), reinterpret_cast<std::uint16_t*>(to));
}
HWY_INLINE void store_half(Float x, Float16* to, Part part) {
  Float16 halves[simd::kMaxLanes];
  store_half(x, halves, Whole{});
  std::copy_n(halves, part.count, to);
}

template <typename PartOrWhole>
HWY_INLINE Float load_weight(const ExactSource& in, std::int64_t i, PartOrWhole part) {
  return load_master(in.high + i, in.low + i, part);
}
template <typename PartOrWhole>
HWY_INLINE Float load_weight(const Fp32Source& in, std::int64_t i, PartOrWhole part) {
  return simd::load(in.weight + i, part);
}
template <typename PartOrWhole>
HWY_INLINE Float load_weight(const Fp16Source& in, std::int64_t i, PartOrWhole part) {
  return simd::load(in.master + i, part);
}
HWY_INLINE void prefetch_weight(const Fp16Source& in, std::int64_t i) { prefetch(in.master + i); }
HWY_INLINE void prefetch_weight(const ExactSource& in, std::int64_t i) { prefetch(in.high + i, in.low + i); }
HWY_INLINE void prefetch_weight(const Fp32Source& in, std::int64_t i) { prefetch(in.weight + i); }
template <typename PartOrWhole>
HWY_INLINE void store_weight(Float w, const ExactState& out, std::int64_t i, PartOrWhole part) {
  store_master(w, out.high + i, out.low + i, part);
}
template <typename PartOrWhole>
HWY_INLINE void store_weight(Float w, const Fp32State& out, std::int64_t i, PartOrWhole part) {
  simd::store(w, out.weight + i, part);
}
template <typename PartOrWhole>
HWY_INLINE void store_weight(Float w, const Fp16State& out, std::int64_t i, PartOrWhole part) {
  simd::store(w, out.master + i, part);
  store_half(w, out.weight + i, part);
}

template <typename Source, typename Gradient, typename State>
void update(const AdamWConstants& constants, const AdamWChunk& chunk, const Source& source, const Gradient* gradient,
            const State& state) {
  // Copies, which a vector's store cannot alias: through the references the pointers would be loaded again for each vector.
  const Source in = source;
  const State out = state;
  const Formulas formulas(constants);
  simd::for_vectors(chunk.count, [&](std::int64_t i, auto part) HWY_ATTR {
    prefetch_weight(in, i);
    prefetch(in.m + i, in.v + i, gradient + i);
    Float w = load_weight(in, i, part), m = simd::load(in.m + i, part), v = simd::load(in.v + i, part);
    formulas.step(simd::load(gradient + i, part), w, m, v);
    store_weight(w, out, i, part);
    simd::store(m, out.m + i, part);
    simd::store(v, out.v + i, part);
  });
}

// --- compact: moments of 16 bits, rounded stochastically ------------------------------------------------------------------
// With 16 random bits a number is rounded up with a chance equal to the part cut off. Infinity stays. A NaN stays, too, without a
// test for it: arithmetic makes the default NaN, or turns one of its operands quiet, and all of these end in 16 zero bits, from
// which nothing carries.

HWY_INLINE void update_element(const Formulas& formulas, RandomKey key, std::uint32_t place, const CompactSource& in,
                               const BFloat16* gradient, const CompactState& out, std::int64_t i) {
  Float w = splat(join_master(in.high[i], in.low[i])), m = splat(in.m[i].to_float()), v = splat(in.v[i].to_float());
  formulas.step(splat(gradient[i].to_float()), w, m, v);
  const SplitMaster master = split_master(hn::GetLane(w));
  out.high[i] = master.high;
  out.low[i] = master.low;
  const std::uint32_t random = random_bits(key, place);
  const auto rounded = [](Float value, std::uint32_t draw) HWY_ATTR {
    return BFloat16{static_cast<std::uint16_t>((std::bit_cast<std::uint32_t>(hn::GetLane(value)) + draw) >> 16)};
  };
  out.m[i] = rounded(m, random & 0xffff);
  out.v[i] = rounded(v, random >> 16);
}

#if HWY_TARGET != HWY_SCALAR
// A vector of 16-bit elements is processed as two vectors of 32 bits: the elements at even and at odd places. Shifts and blends
// split and join them. Widening and narrowing neighbours would take a shuffle for each array and direction, and this form waits
// for instructions more than for memory.
using Words = hn::Repartition<std::uint16_t, simd::FloatTag>;
using SignedWords = hn::RebindToSigned<Words>;

struct EvenOdd {
  Float even, odd;
};

HWY_INLINE hn::Vec<Words> join_upper(hn::Vec<Bits> even, hn::Vec<Bits> odd) {
  return hn::OddEven(hn::BitCast(Words(), odd), hn::BitCast(Words(), hn::ShiftRight<16>(even)));
}
HWY_INLINE hn::Vec<Words> join_lower(hn::Vec<Bits> even, hn::Vec<Bits> odd) {
  return hn::OddEven(hn::BitCast(Words(), hn::ShiftLeft<16>(odd)), hn::BitCast(Words(), even));
}

HWY_INLINE hn::Vec<Words> load_words(const BFloat16* p) { return hn::LoadU(Words(), reinterpret_cast<const std::uint16_t*>(p)); }
HWY_INLINE void store_words(hn::Vec<Words> words, BFloat16* p) {
  hn::StoreU(words, Words(), reinterpret_cast<std::uint16_t*>(p));
}

HWY_INLINE EvenOdd load_pair(const BFloat16* p) {
  const simd::FloatTag d;
  const auto both = hn::BitCast(Bits(), load_words(p));
  return {hn::BitCast(d, hn::ShiftLeft<16>(both)), hn::BitCast(d, hn::And(both, hn::Set(Bits(), 0xffff0000u)))};
}

// The carry of low into the high half: -1 where low is negative, else 0.
HWY_INLINE hn::Vec<Words> carry_of(hn::Vec<SignedWords> low) { return hn::BitCast(Words(), hn::ShiftRight<15>(low)); }

HWY_INLINE EvenOdd load_masters(const BFloat16* high, const std::int16_t* low) {
  const simd::FloatTag d;
  const auto lower = hn::LoadU(SignedWords(), low);
  const auto low_bits = hn::BitCast(Bits(), lower), high_bits = hn::BitCast(Bits(), hn::Add(load_words(high), carry_of(lower)));
  return {hn::BitCast(d, join_lower(low_bits, high_bits)), hn::BitCast(d, join_upper(low_bits, high_bits))};
}
HWY_INLINE void store_masters(EvenOdd master, BFloat16* high, std::int16_t* low) {
  const auto even = hn::BitCast(Bits(), master.even), odd = hn::BitCast(Bits(), master.odd);
  const auto lower = hn::BitCast(SignedWords(), join_lower(even, odd));
  store_words(hn::Sub(join_upper(even, odd), carry_of(lower)), high);
  hn::StoreU(lower, SignedWords(), low);
}

// [lanes] the two halves of random_bits().
struct Draws {
  hn::Vec<Bits> lower, upper;
};
HWY_INLINE Draws draws_of(hn::Vec<Bits> counter, hn::Vec<Bits> second_key) {
  const Bits d;
  const auto x = hn::Mul(hn::Xor3(counter, hn::ShiftRight<16>(counter), second_key), hn::Set(d, kRandomMix));
  const auto upper = hn::ShiftRight<16>(x);
  return {hn::And(hn::Xor(x, upper), hn::Set(d, 0xffff)), upper};
}

HWY_INLINE void store_rounded(EvenOdd value, hn::Vec<Bits> even_draw, hn::Vec<Bits> odd_draw, BFloat16* p) {
  const Bits d;
  store_words(join_upper(hn::Add(hn::BitCast(d, value.even), even_draw), hn::Add(hn::BitCast(d, value.odd), odd_draw)), p);
}
#endif

void update_compact(const AdamWConstants& constants, const AdamWChunk& chunk, const CompactSource& source,
                    const BFloat16* gradient, const CompactState& state) {
  const CompactSource in = source;
  const CompactState out = state;
  const Formulas formulas(constants);
  const std::int64_t count = chunk.count;
  std::int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  const Bits d;
  const auto words = static_cast<std::int64_t>(hn::Lanes(Words()));
  const auto second_key = hn::Set(d, chunk.key.second), to_odd = hn::Set(d, kRandomStride),
             to_next = hn::Set(d, static_cast<std::uint32_t>(words) * kRandomStride);
  auto counter =
      hn::Add(hn::Mul(hn::Iota(d, 0), hn::Set(d, 2 * kRandomStride)), hn::Set(d, chunk.key.first + chunk.first * kRandomStride));
  for (; i + words <= count; i += words) {
    prefetch(in.high + i, in.low + i, in.m + i, in.v + i, gradient + i);
    EvenOdd w = load_masters(in.high + i, in.low + i), m = load_pair(in.m + i), v = load_pair(in.v + i);
    const EvenOdd g = load_pair(gradient + i);
    formulas.step(g.even, w.even, m.even, v.even);
    formulas.step(g.odd, w.odd, m.odd, v.odd);
    store_masters(w, out.high + i, out.low + i);
    const Draws even = draws_of(counter, second_key), odd = draws_of(hn::Add(counter, to_odd), second_key);
    counter = hn::Add(counter, to_next);
    store_rounded(m, even.lower, odd.lower, out.m + i);
    store_rounded(v, even.upper, odd.upper, out.v + i);
  }
#endif
  for (; i < count; ++i) update_element(formulas, chunk.key, chunk.first + static_cast<std::uint32_t>(i), in, gradient, out, i);
}

}  // namespace
AdamWKernels adamw_kernels() {
  return {update<ExactSource, float, ExactState>, update<ExactSource, BFloat16, ExactState>, update_compact,
          update<Fp32Source, float, Fp32State>, update<Fp16Source, float, Fp16State>};
}
}  // namespace HWY_NAMESPACE
}  // namespace spillway
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace spillway {

HWY_EXPORT(adamw_kernels);

AdamWConstants constants_of(const AdamWSettings& s, Decay decay) {
  const auto t = static_cast<double>(s.step - s.skipped);
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

namespace {

constexpr auto kKeyElements = static_cast<std::int64_t>(kRandomKeyIndices);

template <typename Kernel, typename Source, typename Gradient, typename State>
void run_kernel(Kernel kernel, const AdamWSettings& settings, const AdamWRun& run, const Source& in, const Gradient* gradient,
                const State& out) {
  SPILLWAY_CHECK(settings.step > settings.skipped && settings.skipped >= 0 && run.begin >= 0 && run.count >= 0,
                 "step {}, {} of them skipped, elements {} + {}", settings.step, settings.skipped, run.begin, run.count);
  const AdamWConstants constants = constants_of(settings, run.decay);
  const std::int64_t end = run.begin + run.count;
  for (std::int64_t begin = run.begin; begin < end;) {
    const std::int64_t stop = std::min(end, (begin / kKeyElements + 1) * kKeyElements), by = begin - run.begin;
    const AdamWChunk chunk{.key = random_key(settings.seed, static_cast<std::uint64_t>(settings.step), run.block,
                                             static_cast<std::uint64_t>(begin / kKeyElements)),
                           .first = static_cast<std::uint32_t>(begin % kKeyElements),
                           .count = stop - begin};
    kernel(constants, chunk, advanced(in, by), gradient + by, advanced(out, by));
    begin = stop;
  }
}

AdamWKernels best() { return HWY_DYNAMIC_DISPATCH(adamw_kernels)(); }

}  // namespace

void host_adamw(const AdamWSettings& settings, const AdamWRun& run, const ExactSource& in, const float* gradient,
                const ExactState& out) {
  run_kernel(best().exact, settings, run, in, gradient, out);
}
void host_adamw(const AdamWSettings& settings, const AdamWRun& run, const ExactSource& in, const BFloat16* gradient,
                const ExactState& out) {
  run_kernel(best().exact_bf16, settings, run, in, gradient, out);
}
void host_adamw(const AdamWSettings& settings, const AdamWRun& run, const CompactSource& in, const BFloat16* gradient,
                const CompactState& out) {
  run_kernel(best().compact, settings, run, in, gradient, out);
}
void host_adamw(const AdamWSettings& settings, const AdamWRun& run, const Fp32Source& in, const float* gradient,
                const Fp32State& out) {
  run_kernel(best().fp32, settings, run, in, gradient, out);
}
void host_adamw(const AdamWSettings& settings, const AdamWRun& run, const Fp16Source& in, const float* gradient,
                const Fp16State& out) {
  run_kernel(best().fp16, settings, run, in, gradient, out);
}

}  // namespace spillway
#endif
