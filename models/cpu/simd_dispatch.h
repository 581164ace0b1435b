// Macros by which a file of element-wise kernels offers them for both compute types and picks those of the best instruction set
// at run time. The file has a template Table<E> of function pointers and, once per target, a function kernels<E>() that fills it.
// Not here: which instruction sets there are (simd_targets.h).
#pragma once

#include <hwy/highway.h>

#include "memory/base/bfloat16.h"

// Used once per target, in HWY_NAMESPACE: defines the tables under names that HWY_EXPORT can take.
#define SPILLWAY_SIMD_TABLES(Table, name)                       \
  Table<float> name##_fp32() { return kernels<float>(); }       \
  Table<BFloat16> name##_bf16() { return kernels<BFloat16>(); } \
  static_assert(true)

// Used once per file, in the namespace around HWY_NAMESPACE: defines best<E>(), this machine's table.
#define SPILLWAY_SIMD_DISPATCH(Table, name)       \
  HWY_EXPORT(name##_fp32);                        \
  HWY_EXPORT(name##_bf16);                        \
  namespace {                                     \
  template <typename E>                           \
  Table<E> best() {                               \
    if constexpr (sizeof(E) == 4) {               \
      return HWY_DYNAMIC_DISPATCH(name##_fp32)(); \
    } else {                                      \
      return HWY_DYNAMIC_DISPATCH(name##_bf16)(); \
    }                                             \
  }                                               \
  }                                               \
  static_assert(true)
