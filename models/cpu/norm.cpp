// RMSNorm and LayerNorm: a row stays in the first cache between its passes.
#include "models/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "models/cpu/norm.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "models/cpu/ops.h"
#include "models/cpu/row_loop-inl.h"
#include "models/cpu/row_reduce-inl.h"
#include "models/cpu/simd-inl.h"
#include "models/cpu/simd_dispatch.h"

#ifndef SPILLWAY_MODELS_CPU_NORM_TABLE
#define SPILLWAY_MODELS_CPU_NORM_TABLE
namespace spillway::ops {
// One instruction set's kernels.
template <typename E>
struct NormKernels {
  decltype(&ops::rmsnorm_forward<E>) rmsnorm_forward;
  decltype(&ops::rmsnorm_apply<E>) rmsnorm_apply;
  decltype(&ops::rmsnorm_backward<E, E>) rmsnorm_backward;
  decltype(&ops::rmsnorm_backward<E, float>) rmsnorm_backward_float;
  decltype(&ops::layernorm_forward<E>) layernorm_forward;
  decltype(&ops::layernorm_apply<E>) layernorm_apply;
  decltype(&ops::layernorm_backward<E, E>) layernorm_backward;
  decltype(&ops::layernorm_backward<E, float>) layernorm_backward_float;
};
}  // namespace spillway::ops
#endif

HWY_BEFORE_NAMESPACE();
namespace spillway::ops {
namespace HWY_NAMESPACE {
namespace {

// A weight from its stored value, with the offset where there is one.
template <bool kOffset, typename E, typename Lanes>
HWY_INLINE Float load_weight(const E* stored, Lanes part, Float offset) {
  if constexpr (kOffset) {
    return hn::Add(load(stored, part), offset);
  } else {
    return load(stored, part);
  }
}

template <bool kOffset, bool kResidual, typename E>
HWY_INLINE void scale_row(std::int64_t H, const E* x, const E* weight, float offset, float rstd, const E* residual, E* y) {
  const Float factor = splat(rstd), shift = splat(offset);
  for_vectors(H, [&](std::int64_t i, auto part) HWY_ATTR {
    const Float w = load_weight<kOffset>(weight + i, part, shift), u = hn::Mul(load(x + i, part), factor);
    if constexpr (kResidual) {
      store(hn::MulAdd(w, u, load(residual + i, part)), y + i, part);
    } else {
      store(hn::Mul(w, u), y + i, part);
    }
  });
}

template <typename E, bool kOffset, bool kResidual>
void rmsnorm_forward_rows(const ThreadPool& pool, std::int64_t n, std::int64_t H, const E* x, const E* weight, float epsilon,
                          E* y, float* rstd, float offset, const E* residual, std::int64_t stride) {
  for_rows(pool, n, kBlockRows, [&](std::int64_t row) HWY_ATTR {
    const E* in = x + row * stride;
    const float squares = sum_vectors(H, [&](std::int64_t i, auto part) HWY_ATTR {
      const Float v = load(in + i, part);
      return hn::Mul(v, v);
    });
    rstd[row] = 1.0f / std::sqrt(squares / static_cast<float>(H) + epsilon);
    const E* base = kResidual ? residual + row * H : nullptr;
    scale_row<kOffset, kResidual>(H, in, weight, offset, rstd[row], base, y + row * stride);
  });
}

template <typename E>
void rmsnorm_forward(const ThreadPool& pool, std::int64_t n, std::int64_t H, const E* x, const E* weight, float epsilon, E* y,
                     float* rstd, float offset, const E* residual, std::int64_t stride) {
  const auto plain = residual == nullptr ? rmsnorm_forward_rows<E, false, false> : rmsnorm_forward_rows<E, false, true>;
  const auto shifted = residual == nullptr ? rmsnorm_forward_rows<E, true, false> : rmsnorm_forward_rows<E, true, true>;
  (offset == 0 ? plain : shifted)(pool, n, H, x, weight, epsilon, y, rstd, offset, residual, stride);
}

template <typename E, bool kOffset>
void rmsnorm_apply_rows(const ThreadPool& pool, std::int64_t n, std::int64_t H, const E* x, const E* weight, const float* rstd,
                        E* y, float offset, std::int64_t stride) {
  for_rows(pool, n, kBlockRows, [&](std::int64_t row) HWY_ATTR {
    scale_row<kOffset, false, E>(H, x + row * stride, weight, offset, rstd[row], nullptr, y + row * stride);
  });
}

template <typename E>
void rmsnorm_apply(const ThreadPool& pool, std::int64_t n, std::int64_t H, const E* x, const E* weight, const float* rstd, E* y,
                   float offset, std::int64_t stride) {
  (offset == 0 ? rmsnorm_apply_rows<E, false> : rmsnorm_apply_rows<E, true>)(pool, n, H, x, weight, rstd, y, offset, stride);
}

// With g = dy w and u = x rstd: dx = rstd (g - u mean(g u)), dw = sum over rows of dy u.
template <typename E, typename G, bool kOffset>
void rmsnorm_backward_rows(const ThreadPool& pool, std::int64_t n, std::int64_t H, const G* dy, const E* x, const E* weight,
                           const float* rstd, const E* residual_gradient, E* dx, float* dweight, Store how, std::byte* scratch,
                           float offset, std::int64_t stride) {
  auto* partial = reinterpret_cast<float*>(scratch);
  for_rows(pool, n, kBlockRows, [&](std::int64_t row) HWY_ATTR {
    float* dw = dweight == nullptr ? nullptr : partial + row / kBlockRows * H;
    if (dw != nullptr && row % kBlockRows == 0) std::memset(dw, 0, static_cast<std::size_t>(H) * sizeof(float));
    const G* d = dy + row * stride;
    const E* in = x + row * stride;
    const Float r = splat(rstd[row]), shift = splat(offset);
    const float dot = sum_vectors(H, [&](std::int64_t i, auto part) HWY_ATTR {
      const Float du = hn::Mul(load(d + i, part), hn::Mul(load(in + i, part), r));
      if (dw != nullptr) store(hn::Add(load(dw + i, part), du), dw + i, part);
      return hn::Mul(du, load_weight<kOffset>(weight + i, part, shift));
    });
    const Float mean = splat(dot / static_cast<float>(H));
    const E* residual = residual_gradient == nullptr ? nullptr : residual_gradient + row * H;
    E* out = dx + row * stride;
    for_vectors(H, [&](std::int64_t i, auto part) HWY_ATTR {
      const Float g = hn::Mul(load(d + i, part), load_weight<kOffset>(weight + i, part, shift));
      const Float u = hn::Mul(load(in + i, part), r);
      Float value = hn::Mul(r, hn::NegMulAdd(u, mean, g));
      if (residual != nullptr) value = hn::Add(value, load(residual + i, part));
      store(value, out + i, part);
    });
  });
  if (dweight != nullptr) reduce_blocks(pool, row_blocks(n), H, partial, dweight, how);
}

template <typename E, typename G>
void rmsnorm_backward(const ThreadPool& pool, std::int64_t n, std::int64_t H, const G* dy, const E* x, const E* weight,
                      const float* rstd, const E* residual_gradient, E* dx, float* dweight, Store how, std::byte* scratch,
                      float offset, std::int64_t stride) {
  const auto rows = offset == 0 ? rmsnorm_backward_rows<E, G, false> : rmsnorm_backward_rows<E, G, true>;
  rows(pool, n, H, dy, x, weight, rstd, residual_gradient, dx, dweight, how, scratch, offset, stride);
}

template <typename E>
HWY_INLINE void normalise_row(std::int64_t H, const E* x, const E* weight, const E* bias, float mean, float rstd, E* y) {
  const Float m = splat(mean), r = splat(rstd);
  for_vectors(H, [&](std::int64_t i, auto part) HWY_ATTR {
    const Float u = hn::Mul(hn::Sub(load(x + i, part), m), r);
    store(hn::MulAdd(u, load(weight + i, part), load(bias + i, part)), y + i, part);
  });
}

template <typename E>
void layernorm_forward(const ThreadPool& pool, std::int64_t n, std::int64_t H, const E* x, const E* weight, const E* bias,
                       float epsilon, E* y, float* mean, float* rstd) {
  for_rows(pool, n, kBlockRows, [&](std::int64_t row) HWY_ATTR {
    const E* in = x + row * H;
    const float sum = sum_vectors(H, [&](std::int64_t i, auto part) HWY_ATTR { return load(in + i, part); });
    mean[row] = sum / static_cast<float>(H);
    const Float m = splat(mean[row]);
    // The lanes beyond the row would add mean^2 each.
    const float squares = sum_vectors(H, [&](std::int64_t i, auto part) HWY_ATTR {
      const Float v = masked(hn::Sub(load(in + i, part), m), part);
      return hn::Mul(v, v);
    });
    rstd[row] = 1.0f / std::sqrt(squares / static_cast<float>(H) + epsilon);
    normalise_row(H, in, weight, bias, mean[row], rstd[row], y + row * H);
  });
}

template <typename E>
void layernorm_apply(const ThreadPool& pool, std::int64_t n, std::int64_t H, const E* x, const E* weight, const E* bias,
                     const float* mean, const float* rstd, E* y) {
  for_rows(pool, n, kBlockRows,
           [&](std::int64_t row) HWY_ATTR { normalise_row(H, x + row * H, weight, bias, mean[row], rstd[row], y + row * H); });
}

// With g = dy w and u = (x - mean) rstd: dx = rstd (g - mean(g) - u mean(g u)), dw = sum of dy u, dbias = sum of dy.
template <typename E, typename G>
void layernorm_backward(const ThreadPool& pool, std::int64_t n, std::int64_t H, const G* dy, const E* x, const E* weight,
                        const float* mean, const float* rstd, const E* residual_gradient, E* dx, float* dweight, float* dbias,
                        Store how, std::byte* scratch) {
  auto* partial_weight = reinterpret_cast<float*>(scratch);
  float* partial_bias = partial_weight + row_blocks(n) * H;
  for_rows(pool, n, kBlockRows, [&](std::int64_t row) HWY_ATTR {
    float* dw = dweight == nullptr ? nullptr : partial_weight + row / kBlockRows * H;
    float* db = dweight == nullptr ? nullptr : partial_bias + row / kBlockRows * H;
    if (dw != nullptr && row % kBlockRows == 0) {
      std::memset(dw, 0, static_cast<std::size_t>(H) * sizeof(float));
      std::memset(db, 0, static_cast<std::size_t>(H) * sizeof(float));
    }
    const G* d = dy + row * H;
    const E* in = x + row * H;
    const Float m = splat(mean[row]), r = splat(rstd[row]);
    const float dot = sum_vectors(H, [&](std::int64_t i, auto part) HWY_ATTR {
      const Float dyi = load(d + i, part);
      const Float du = hn::Mul(dyi, hn::Mul(hn::Sub(load(in + i, part), m), r));
      if (dw != nullptr) {
        store(hn::Add(load(dw + i, part), du), dw + i, part);
        store(hn::Add(load(db + i, part), dyi), db + i, part);
      }
      return hn::Mul(du, load(weight + i, part));
    });
    const float total =
        sum_vectors(H, [&](std::int64_t i, auto part) HWY_ATTR { return hn::Mul(load(d + i, part), load(weight + i, part)); });
    const Float mean_gu = splat(dot / static_cast<float>(H)), mean_g = splat(total / static_cast<float>(H));
    const E* residual = residual_gradient == nullptr ? nullptr : residual_gradient + row * H;
    E* out = dx + row * H;
    for_vectors(H, [&](std::int64_t i, auto part) HWY_ATTR {
      const Float g = hn::Mul(load(d + i, part), load(weight + i, part));
      const Float u = hn::Mul(hn::Sub(load(in + i, part), m), r);
      Float value = hn::Mul(r, hn::NegMulAdd(u, mean_gu, hn::Sub(g, mean_g)));
      if (residual != nullptr) value = hn::Add(value, load(residual + i, part));
      store(value, out + i, part);
    });
  });
  if (dweight == nullptr) return;
  reduce_blocks(pool, row_blocks(n), H, partial_weight, dweight, how);
  reduce_blocks(pool, row_blocks(n), H, partial_bias, dbias, how);
}

template <typename E>
NormKernels<E> kernels() {
  return {rmsnorm_forward<E>,   rmsnorm_apply<E>,   rmsnorm_backward<E, E>,   rmsnorm_backward<E, float>,
          layernorm_forward<E>, layernorm_apply<E>, layernorm_backward<E, E>, layernorm_backward<E, float>};
}

}  // namespace
SPILLWAY_SIMD_TABLES(NormKernels, norm);
}  // namespace HWY_NAMESPACE
}  // namespace spillway::ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace spillway::ops {

SPILLWAY_SIMD_DISPATCH(NormKernels, norm);

Bytes rmsnorm_backward_scratch_bytes(std::int64_t n, std::int64_t H) { return partial_sums_bytes(n, H); }
Bytes layernorm_backward_scratch_bytes(std::int64_t n, std::int64_t H) { return 2 * partial_sums_bytes(n, H); }

template <typename E>
void rmsnorm_forward(const ThreadPool& pool, std::int64_t n, std::int64_t H, const E* x, const E* weight, float epsilon, E* y,
                     float* rstd, float offset, const E* residual, std::int64_t stride) {
  best<E>().rmsnorm_forward(pool, n, H, x, weight, epsilon, y, rstd, offset, residual, stride > 0 ? stride : H);
}
template <typename E>
void rmsnorm_apply(const ThreadPool& pool, std::int64_t n, std::int64_t H, const E* x, const E* weight, const float* rstd, E* y,
                   float offset, std::int64_t stride) {
  best<E>().rmsnorm_apply(pool, n, H, x, weight, rstd, y, offset, stride > 0 ? stride : H);
}
template <typename E, typename G>
void rmsnorm_backward(const ThreadPool& pool, std::int64_t n, std::int64_t H, const G* dy, const E* x, const E* weight,
                      const float* rstd, const E* residual_gradient, E* dx, float* dweight, Store how, std::byte* scratch,
                      float offset, std::int64_t stride) {
  const auto kernels = best<E>();
  if (stride <= 0) stride = H;
  if constexpr (std::is_same_v<E, G>) {
    kernels.rmsnorm_backward(pool, n, H, dy, x, weight, rstd, residual_gradient, dx, dweight, how, scratch, offset, stride);
  } else {
    kernels.rmsnorm_backward_float(pool, n, H, dy, x, weight, rstd, residual_gradient, dx, dweight, how, scratch, offset, stride);
  }
}
template <typename E>
void layernorm_forward(const ThreadPool& pool, std::int64_t n, std::int64_t H, const E* x, const E* weight, const E* bias,
                       float epsilon, E* y, float* mean, float* rstd) {
  best<E>().layernorm_forward(pool, n, H, x, weight, bias, epsilon, y, mean, rstd);
}
template <typename E>
void layernorm_apply(const ThreadPool& pool, std::int64_t n, std::int64_t H, const E* x, const E* weight, const E* bias,
                     const float* mean, const float* rstd, E* y) {
  best<E>().layernorm_apply(pool, n, H, x, weight, bias, mean, rstd, y);
}
template <typename E, typename G>
void layernorm_backward(const ThreadPool& pool, std::int64_t n, std::int64_t H, const G* dy, const E* x, const E* weight,
                        const float* mean, const float* rstd, const E* residual_gradient, E* dx, float* dweight, float* dbias,
                        Store how, std::byte* scratch) {
  const auto kernels = best<E>();
  if constexpr (std::is_same_v<E, G>) {
    kernels.layernorm_backward(pool, n, H, dy, x, weight, mean, rstd, residual_gradient, dx, dweight, dbias, how, scratch);
  } else {
    kernels.layernorm_backward_float(pool, n, H, dy, x, weight, mean, rstd, residual_gradient, dx, dweight, dbias, how, scratch);
  }
}

#define SPILLWAY_INSTANTIATE_GRADIENT(E, G)                                                                                   \
  template void rmsnorm_backward(const ThreadPool&, std::int64_t, std::int64_t, const G*, const E*, const E*, const float*,   \
                                 const E*, E*, float*, Store, std::byte*, float, std::int64_t);                               \
  template void layernorm_backward(const ThreadPool&, std::int64_t, std::int64_t, const G*, const E*, const E*, const float*, \
                                   const float*, const E*, E*, float*, float*, Store, std::byte*);
#define SPILLWAY_INSTANTIATE(E)                                                                                              \
  template void rmsnorm_forward(const ThreadPool&, std::int64_t, std::int64_t, const E*, const E*, float, E*, float*, float, \
                                const E*, std::int64_t);                                                                     \
  template void rmsnorm_apply(const ThreadPool&, std::int64_t, std::int64_t, const E*, const E*, const float*, E*, float,    \
                              std::int64_t);                                                                                 \
  template void layernorm_forward(const ThreadPool&, std::int64_t, std::int64_t, const E*, const E*, const E*, float, E*,    \
                                  float*, float*);                                                                           \
  template void layernorm_apply(const ThreadPool&, std::int64_t, std::int64_t, const E*, const E*, const E*, const float*,   \
                                const float*, E*);
SPILLWAY_INSTANTIATE(float)
SPILLWAY_INSTANTIATE(BFloat16)
SPILLWAY_INSTANTIATE_GRADIENT(float, float)
SPILLWAY_INSTANTIATE_GRADIENT(BFloat16, BFloat16)
SPILLWAY_INSTANTIATE_GRADIENT(BFloat16, float)
#undef SPILLWAY_INSTANTIATE
#undef SPILLWAY_INSTANTIATE_GRADIENT

}  // namespace spillway::ops
#endif
