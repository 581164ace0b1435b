// Packs of numbers, as they lie in memory, and the fp32 numbers that kernels compute with.
#pragma once

#include <cstdint>

#include "memory/base/bfloat16.h"
#include "memory/base/float16.h"
#include "models/cuda/gpu.cuh"

namespace spillway::cuda {

// The factor from an exponent of e to an exponent of two.
inline constexpr float kLog2E = 1.44269504f;

// n elements that one instruction moves.
template <typename T, int n>
struct alignas(sizeof(T) * n) Pack {
  static_assert(sizeof(T) * n <= 16 && (n & (n - 1)) == 0);
  T x[n];
};

// Elements of a pack of 16 bytes. Kernels use it if rows are whole packs (fits_packs), and else packs of 1.
template <typename T>
inline constexpr int kWidest = 16 / sizeof(T);
template <typename T>
bool fits_packs(std::int64_t elements) {
  return elements % kWidest<T> == 0;
}

template <int n>
struct Floats {
  float x[n];
};

template <typename T, int n>
SPILLWAY_GPU Floats<n> load_floats(const Gpu& gpu, const T* from) {
  const auto pack = gpu.load(reinterpret_cast<const Pack<T, n>*>(from));
  Floats<n> floats;
  for (int i = 0; i < n; ++i) floats.x[i] = to_float(pack.x[i]);
  return floats;
}

template <typename T, int n>
SPILLWAY_GPU void store_floats(const Gpu& gpu, T* to, const Floats<n>& floats) {
  Pack<T, n> pack;
  for (int i = 0; i < n; ++i) pack.x[i] = from_float<T>(floats.x[i]);
  gpu.store(reinterpret_cast<Pack<T, n>*>(to), pack);
}

// Stores sums in fp32, up to 16 bytes at a time.
template <int n>
SPILLWAY_GPU void store_sums(const Gpu& gpu, float* to, const Floats<n>& sums) {
  constexpr int each = n < 4 ? n : 4;
  for (int i = 0; i < n; i += each) {
    Pack<float, each> pack;
    for (int k = 0; k < each; ++k) pack.x[k] = sums.x[i + k];
    gpu.store(reinterpret_cast<Pack<float, each>*>(to + i), pack);
  }
}
template <int n>
SPILLWAY_GPU Floats<n> load_sums(const Gpu& gpu, const float* from) {
  constexpr int each = n < 4 ? n : 4;
  Floats<n> sums;
  for (int i = 0; i < n; i += each) {
    const auto pack = gpu.load(reinterpret_cast<const Pack<float, each>*>(from + i));
    for (int k = 0; k < each; ++k) sums.x[i + k] = pack.x[k];
  }
  return sums;
}
// to += sums if `adds`, else to = sums.
template <int n>
SPILLWAY_GPU void sum_into(const Gpu& gpu, float* to, Floats<n> sums, bool adds) {
  if (adds) {
    const Floats<n> before = load_sums<n>(gpu, to);
    for (int i = 0; i < n; ++i) sums.x[i] += before.x[i];
  }
  store_sums(gpu, to, sums);
}

// The sum over a warp's lanes, the same in all of them, along a fixed tree of pairs.
template <typename T>
SPILLWAY_GPU T warp_sum(const Gpu& gpu, T x) {
  for (int mask = 16; mask > 0; mask /= 2) x += gpu.shuffle_xor(x, mask);
  return x;
}
SPILLWAY_GPU float warp_max(const Gpu& gpu, float x) {
  for (int mask = 16; mask > 0; mask /= 2) {
    const float other = gpu.shuffle_xor(x, mask);
    x = x > other ? x : other;
  }
  return x;
}

}  // namespace spillway::cuda
