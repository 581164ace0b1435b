// Access to single elements of an array whose type is known only at run time, for code that need not be fast.
#pragma once

#include <cstddef>
#include <cstdint>

#include "memory/base/bfloat16.h"
#include "memory/base/float16.h"
#include "memory/base/types.h"

namespace spillway {

inline double element(const std::byte* data, DType type, std::int64_t i) {
  switch (type) {
    case DType::float32: return static_cast<double>(reinterpret_cast<const float*>(data)[i]);
    case DType::bfloat16: return static_cast<double>(reinterpret_cast<const BFloat16*>(data)[i].to_float());
    case DType::float16: return static_cast<double>(reinterpret_cast<const Float16*>(data)[i].to_float());
  }
  return 0;
}

// Stores x, rounded to fp32, and from there to the type.
inline void set_element(std::byte* data, DType type, std::int64_t i, double x) {
  switch (type) {
    case DType::float32: reinterpret_cast<float*>(data)[i] = static_cast<float>(x); break;
    case DType::bfloat16: reinterpret_cast<BFloat16*>(data)[i] = BFloat16::from_float(static_cast<float>(x)); break;
    case DType::float16: reinterpret_cast<Float16*>(data)[i] = Float16::from_float(static_cast<float>(x)); break;
  }
}

}  // namespace spillway
