// Activations and element-wise helpers: one pass over memory each.
#include "models/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "models/cpu/pointwise.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "memory/base/error.h"
#include "models/cpu/experts/clamped_swiglu.h"
#include "models/cpu/ops.h"
#include "models/cpu/row_loop-inl.h"
#include "models/cpu/simd-inl.h"
#include "models/cpu/simd_dispatch.h"

#ifndef SPILLWAY_MODELS_CPU_POINTWISE_TABLE
#define SPILLWAY_MODELS_CPU_POINTWISE_TABLE
namespace spillway::ops {
// One instruction set's kernels.
template <typename E>
struct PointwiseKernels {
  decltype(&ops::gated_forward<E>) gated_forward;
  decltype(&ops::gated_backward<E>) gated_backward;
  decltype(&ops::gelu_forward<E>) gelu_forward;
  decltype(&ops::gelu_backward<E>) gelu_backward;
  decltype(&ops::add<E>) add;
  decltype(&ops::accumulate_into<E>) accumulate_into;
  decltype(&ops::scale<E>) scale;
  decltype(&ops::softcap<E>) softcap;
  decltype(&ops::dropout<E>) dropout;
  decltype(&ops::cast_from_float<E>) cast_from_float;
  decltype(&ops::cast_to_float<E>) cast_to_float;
};
}  // namespace spillway::ops
#endif

HWY_BEFORE_NAMESPACE();
namespace spillway::ops {
namespace HWY_NAMESPACE {
namespace {

constexpr std::int64_t kChunk = 16 * 1024;  // elements per task: enough to hide the task's start, few enough to balance

template <typename Body>
void in_chunks(const ThreadPool& pool, std::int64_t elements, const Body& body) {
  pool.parallel_for((elements + kChunk - 1) / kChunk, [&](std::int64_t task, int) HWY_ATTR {
    const std::int64_t first = task * kChunk;
    body(first, std::min(kChunk, elements - first));
  });
}

// Number of rows of `width` elements that make about a chunk.
std::int64_t task_rows(std::int64_t width) { return std::max<std::int64_t>(1, kChunk / width); }

struct Activated {
  Float value;
  Float slope;
};

HWY_INLINE Activated silu(Float x) {
  const Float s = sigmoid(x);
  const Float value = hn::Mul(x, s);
  // s + x s (1 - s)
  return {value, hn::MulAdd(value, hn::Sub(splat(1.0f), s), s)};
}

// x sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3): the tanh form without a tanh.
HWY_INLINE Activated gelu_tanh(Float x) {
  constexpr float kTwoRoot = 1.5957691216f;  // 2 sqrt(2/pi)
  const Float square = hn::Mul(x, x);
  const Float twice_u = hn::Mul(x, hn::MulAdd(square, splat(kTwoRoot * 0.044715f), splat(kTwoRoot)));
  const Float slope_u = hn::MulAdd(square, splat(kTwoRoot * 3.0f * 0.044715f), splat(kTwoRoot));
  // s comes from exp(-|2u|), so that s and s (1 - s) keep their relative accuracy in both tails.
  const Float e = exp(hn::Neg(hn::Abs(twice_u)));
  const Float whole = hn::Div(splat(1.0f), hn::Add(splat(1.0f), e));
  const Float rest = hn::Mul(e, whole);
  const Float s = hn::IfThenElse(hn::Lt(twice_u, zero()), rest, whole);
  return {hn::Mul(x, s), hn::MulAdd(hn::Mul(x, hn::Mul(whole, rest)), slope_u, s)};
}

// x Phi(x). Phi(-|x|) = exp(-z^2) P(t) / 2, z = |x| / sqrt 2, t = 1 / (1 + 0.35 z): P is a least-maximum fit of
// exp(z^2) erfc(z), relative error 7e-9 up to z = 9.5.
HWY_INLINE Activated gelu_exact(Float x) {
  constexpr float kFit[10] = {0.1974882150f,  0.1970582823f,   0.1885238772f, 0.1484610474f,  0.1534917129f,
                              0.07383338449f, -0.01257035425f, 0.1705778321f, -0.1544723013f, 0.03760830069f};
  const Float half_square = hn::Mul(hn::Mul(x, x), splat(0.5f));
  const Float z = hn::Mul(hn::Abs(x), splat(0.7071067812f));
  const Float t = hn::Div(splat(1.0f), hn::MulAdd(z, splat(0.35f), splat(1.0f)));
  Float p = splat(kFit[9]);
  for (int i = 8; i >= 0; --i) p = hn::MulAdd(p, t, splat(kFit[i]));
  const Float gauss = exp(hn::Neg(half_square));
  const Float tail = hn::Mul(hn::Mul(gauss, splat(0.5f)), hn::Mul(p, t));
  const Float phi = hn::IfThenElse(hn::Lt(x, zero()), tail, hn::Sub(splat(1.0f), tail));
  return {hn::Mul(x, phi), hn::MulAdd(hn::Mul(x, splat(0.3989422804f)), gauss, phi)};
}

// Calls use(the activation of this kind).
template <typename Use>
HWY_INLINE void with_activation(Activation kind, const Use& use) {
  switch (kind) {
    case Activation::silu: return use([](Float x) HWY_ATTR { return silu(x); });
    case Activation::gelu_tanh: return use([](Float x) HWY_ATTR { return gelu_tanh(x); });
    case Activation::gelu_erf: return use([](Float x) HWY_ATTR { return gelu_exact(x); });
    case Activation::clamped_swiglu: return;  // has kernels of its own
  }
}

template <typename E>
void gated_forward(const ThreadPool& pool, Activation kind, std::int64_t n, std::int64_t I, const E* gu, E* h) {
  with_activation(kind, [&](const auto& activation) HWY_ATTR {
    for_rows(pool, n, task_rows(I), [&](std::int64_t row) HWY_ATTR {
      const E* gate = gu + row * 2 * I;
      const E* up = gate + I;
      for_vectors(I, [&](std::int64_t i, auto part) HWY_ATTR {
        store(hn::Mul(activation(load(gate + i, part)).value, load(up + i, part)), h + row * I + i, part);
      });
    });
  });
}

template <typename E>
void gated_backward(const ThreadPool& pool, Activation kind, std::int64_t n, std::int64_t I, const E* dh, const E* gu, E* dgu,
                    E* h) {
  with_activation(kind, [&](const auto& activation) HWY_ATTR {
    for_rows(pool, n, task_rows(I), [&](std::int64_t row) HWY_ATTR {
      const E* gate = gu + row * 2 * I;
      const E* up = gate + I;
      E* dgate = dgu + row * 2 * I;
      E* dup = dgate + I;
      for_vectors(I, [&](std::int64_t i, auto part) HWY_ATTR {
        const Activated result = activation(load(gate + i, part));
        const Float u = load(up + i, part);
        const Float d = load(dh + row * I + i, part);
        if (h != nullptr) store(hn::Mul(result.value, u), h + row * I + i, part);
        store(hn::Mul(hn::Mul(d, u), result.slope), dgate + i, part);
        store(hn::Mul(d, result.value), dup + i, part);
      });
    });
  });
}

template <typename E>
void gelu_forward(const ThreadPool& pool, Activation kind, std::int64_t elements, const E* pre, E* h) {
  in_chunks(pool, elements, [&](std::int64_t first, std::int64_t count) HWY_ATTR {
    const E* x = pre + first;
    E* y = h + first;
    if (kind == Activation::gelu_tanh) {
      for_vectors(count, [&](std::int64_t i, auto part) HWY_ATTR { store(gelu_tanh(load(x + i, part)).value, y + i, part); });
    } else {
      for_vectors(count, [&](std::int64_t i, auto part) HWY_ATTR { store(gelu_exact(load(x + i, part)).value, y + i, part); });
    }
  });
}

template <typename E>
void gelu_backward(const ThreadPool& pool, Activation kind, std::int64_t elements, const E* dh, const E* pre, E* dpre, E* h) {
  in_chunks(pool, elements, [&](std::int64_t first, std::int64_t count) HWY_ATTR {
    const auto with = [&](const auto& activation) HWY_ATTR {
      for_vectors(count, [&](std::int64_t i, auto part) HWY_ATTR {
        const Float d = load(dh + first + i, part);
        const Activated result = activation(load(pre + first + i, part));
        if (h != nullptr) store(result.value, h + first + i, part);
        store(hn::Mul(d, result.slope), dpre + first + i, part);
      });
    };
    if (kind == Activation::gelu_tanh) {
      with([](Float x) HWY_ATTR { return gelu_tanh(x); });
    } else {
      with([](Float x) HWY_ATTR { return gelu_exact(x); });
    }
  });
}

template <typename E>
void add(const ThreadPool& pool, std::int64_t elements, const E* a, const E* b, E* sum) {
  in_chunks(pool, elements, [&](std::int64_t first, std::int64_t count) HWY_ATTR {
    for_vectors(count, [&](std::int64_t i, auto part) HWY_ATTR {
      store(hn::Add(load(a + first + i, part), load(b + first + i, part)), sum + first + i, part);
    });
  });
}

template <typename E>
void accumulate_into(const ThreadPool& pool, std::int64_t elements, const E* a, float* sum) {
  in_chunks(pool, elements, [&](std::int64_t first, std::int64_t count) HWY_ATTR {
    for_vectors(count, [&](std::int64_t i, auto part) HWY_ATTR {
      store(hn::Add(load(sum + first + i, part), load(a + first + i, part)), sum + first + i, part);
    });
  });
}

template <typename E>
void scale(const ThreadPool& pool, std::int64_t elements, float factor, E* x) {
  in_chunks(pool, elements, [&](std::int64_t first, std::int64_t count) HWY_ATTR {
    for_vectors(count, [&](std::int64_t i, auto part)
                           HWY_ATTR { store(hn::Mul(load(x + first + i, part), splat(factor)), x + first + i, part); });
  });
}

template <typename E>
void softcap(const ThreadPool& pool, std::int64_t elements, float cap, E* x) {
  in_chunks(pool, elements, [&](std::int64_t first, std::int64_t count) HWY_ATTR {
    const Float limit = splat(cap), inverse = splat(1.0f / cap);
    for_vectors(count, [&](std::int64_t i, auto part)
                           HWY_ATTR { store(capped(load(x + first + i, part), limit, inverse), x + first + i, part); });
  });
}

// The float factor where random_bits() of the key keeps an element, else 0; for elements from `place` on.
HWY_INLINE Float factors(RandomKey key, std::uint32_t place, std::uint32_t threshold, float factor) {
  const hn::RebindToUnsigned<FloatTag> d;
  const auto counter = hn::Add(hn::Mul(hn::Iota(d, 0), hn::Set(d, kRandomStride)), hn::Set(d, place * kRandomStride + key.first));
  auto x = hn::Xor(hn::Xor(counter, hn::ShiftRight<16>(counter)), hn::Set(d, key.second));
  x = hn::Mul(x, hn::Set(d, kRandomMix));
  x = hn::Xor(x, hn::ShiftRight<16>(x));
  const auto drops = hn::Lt(x, hn::Set(d, threshold));
  return hn::IfThenZeroElse(hn::RebindMask(FloatTag(), drops), splat(factor));
}

template <typename E>
void dropout(const ThreadPool& pool, std::int64_t elements, const DropoutMask& mask, std::uint64_t key, const E* x, E* y,
             bool adds) {
  static_assert(kRandomKeyIndices % kChunk == 0, "a chunk's elements share a key");
  const std::uint32_t threshold = mask.threshold();
  in_chunks(pool, elements, [&](std::int64_t first, std::int64_t count) HWY_ATTR {
    const auto at = static_cast<std::uint64_t>(first);
    const RandomKey of = mask.key(key, at / kRandomKeyIndices);
    const auto place = static_cast<std::uint32_t>(at % kRandomKeyIndices);
    for_vectors(count, [&](std::int64_t i, auto part) HWY_ATTR {
      Float value = load(x + first + i, part);
      if (key != 0) {
        const Float keeps = factors(of, place + static_cast<std::uint32_t>(i), threshold, mask.factor());
        // Selected, not multiplied by 0: what is dropped is 0 whatever it was.
        value = hn::IfThenElseZero(hn::Ne(keeps, zero()), hn::Mul(value, keeps));
      }
      if (adds) value = hn::Add(load(y + first + i, part), value);
      store(value, y + first + i, part);
    });
  });
}

template <typename From, typename To>
void cast(const ThreadPool& pool, std::int64_t elements, const From* x, To* y) {
  in_chunks(pool, elements, [&](std::int64_t first, std::int64_t count) HWY_ATTR {
    for_vectors(count, [&](std::int64_t i, auto part) HWY_ATTR { store(load(x + first + i, part), y + first + i, part); });
  });
}

template <typename E>
PointwiseKernels<E> kernels() {
  return {gated_forward<E>, gated_backward<E>, gelu_forward<E>, gelu_backward<E>, add<E>,        accumulate_into<E>,
          scale<E>,         softcap<E>,        dropout<E>,      cast<float, E>,   cast<E, float>};
}

}  // namespace
SPILLWAY_SIMD_TABLES(PointwiseKernels, pointwise);
}  // namespace HWY_NAMESPACE
}  // namespace spillway::ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace spillway::ops {

SPILLWAY_SIMD_DISPATCH(PointwiseKernels, pointwise);

template <typename E>
void gated_forward(const ThreadPool& pool, Activation kind, std::int64_t n, std::int64_t I, const E* gu, E* h) {
  if (kind == Activation::clamped_swiglu) return clamped_swiglu_forward(pool, n, I, gu, h);
  best<E>().gated_forward(pool, kind, n, I, gu, h);
}
template <typename E>
void gated_backward(const ThreadPool& pool, Activation kind, std::int64_t n, std::int64_t I, const E* dh, const E* gu, E* dgu,
                    E* h) {
  if (kind == Activation::clamped_swiglu) return clamped_swiglu_backward(pool, n, I, dh, gu, dgu, h);
  best<E>().gated_backward(pool, kind, n, I, dh, gu, dgu, h);
}
template <typename E>
void gelu_forward(const ThreadPool& pool, Activation kind, std::int64_t elements, const E* pre, E* h) {
  SPILLWAY_CHECK(kind != Activation::silu, "silu without a gate");
  best<E>().gelu_forward(pool, kind, elements, pre, h);
}
template <typename E>
void gelu_backward(const ThreadPool& pool, Activation kind, std::int64_t elements, const E* dh, const E* pre, E* dpre, E* h) {
  SPILLWAY_CHECK(kind != Activation::silu, "silu without a gate");
  best<E>().gelu_backward(pool, kind, elements, dh, pre, dpre, h);
}
template <typename E>
void add(const ThreadPool& pool, std::int64_t elements, const E* a, const E* b, E* sum) {
  best<E>().add(pool, elements, a, b, sum);
}
template <typename E>
void accumulate_into(const ThreadPool& pool, std::int64_t elements, const E* a, float* sum) {
  best<E>().accumulate_into(pool, elements, a, sum);
}
template <typename E>
void scale(const ThreadPool& pool, std::int64_t elements, float factor, E* x) {
  best<E>().scale(pool, elements, factor, x);
}
template <typename E>
void softcap(const ThreadPool& pool, std::int64_t elements, float cap, E* x) {
  SPILLWAY_CHECK(cap > 0 && std::isfinite(cap), "values capped at {}", cap);
  best<E>().softcap(pool, elements, cap, x);
}
template <typename E>
void dropout(const ThreadPool& pool, std::int64_t elements, const DropoutMask& mask, std::uint64_t key, const E* x, E* y,
             bool adds) {
  SPILLWAY_CHECK(mask.probability >= 0 && mask.probability < 1, "dropout of {}", mask.probability);
  best<E>().dropout(pool, elements, mask, key, x, y, adds);
}
template <typename E>
void cast_from_float(const ThreadPool& pool, std::int64_t elements, const float* x, E* y) {
  best<E>().cast_from_float(pool, elements, x, y);
}
template <typename E>
void cast_to_float(const ThreadPool& pool, std::int64_t elements, const E* x, float* y) {
  best<E>().cast_to_float(pool, elements, x, y);
}
void accumulate(const ThreadPool& pool, std::int64_t elements, const float* a, float* sum) {
  accumulate_into<float>(pool, elements, a, sum);
}

void fill_zero(const ThreadPool& pool, Bytes bytes, void* data) {
  constexpr Bytes kPiece = 256 * kKiB;
  pool.parallel_for((bytes + kPiece - 1) / kPiece, [&](std::int64_t task, int) {
    const Bytes first = task * kPiece;
    std::memset(static_cast<std::byte*>(data) + first, 0, static_cast<std::size_t>(std::min(kPiece, bytes - first)));
  });
}

#define SPILLWAY_INSTANTIATE(E)                                                                                        \
  template void gated_forward(const ThreadPool&, Activation, std::int64_t, std::int64_t, const E*, E*);                \
  template void gated_backward(const ThreadPool&, Activation, std::int64_t, std::int64_t, const E*, const E*, E*, E*); \
  template void gelu_forward(const ThreadPool&, Activation, std::int64_t, const E*, E*);                               \
  template void gelu_backward(const ThreadPool&, Activation, std::int64_t, const E*, const E*, E*, E*);                \
  template void add(const ThreadPool&, std::int64_t, const E*, const E*, E*);                                          \
  template void accumulate_into(const ThreadPool&, std::int64_t, const E*, float*);                                    \
  template void scale(const ThreadPool&, std::int64_t, float, E*);                                                     \
  template void softcap(const ThreadPool&, std::int64_t, float, E*);                                                   \
  template void dropout(const ThreadPool&, std::int64_t, const DropoutMask&, std::uint64_t, const E*, E*, bool);       \
  template void cast_from_float(const ThreadPool&, std::int64_t, const float*, E*);                                    \
  template void cast_to_float(const ThreadPool&, std::int64_t, const E*, float*);
SPILLWAY_INSTANTIATE(float)
SPILLWAY_INSTANTIATE(BFloat16)
#undef SPILLWAY_INSTANTIATE

}  // namespace spillway::ops
#endif
