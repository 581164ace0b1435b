// Turns types that are known at run time into template arguments.
#pragma once

#include <type_traits>

#include "memory/base/bfloat16.h"
#include "memory/base/float16.h"
#include "memory/base/types.h"

namespace spillway::cuda {

template <typename F>
void with_type(DType type, const F& f) {
  switch (type) {
    case DType::float32: return f(std::type_identity<float>());
    case DType::bfloat16: return f(std::type_identity<BFloat16>());
    case DType::float16: return f(std::type_identity<Float16>());
  }
}

template <int n>
using Int = std::integral_constant<int, n>;

}  // namespace spillway::cuda
