// Turns lengths and addresses that are known at run time into the widest packs that fit them.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "models/cuda/vectors.cuh"
#include "models/cuda/with_type.h"

namespace spillway::cuda {

// Calls f with the widest pack that divides all lengths (in elements of type T) and fits all addresses.
template <typename T, typename F>
void with_pack(std::initializer_list<std::int64_t> elements, std::initializer_list<const void*> places, const F& f) {
  bool fits = true;
  for (const std::int64_t length : elements) fits &= length % kWidest<T> == 0;
  for (const void* place : places) fits &= reinterpret_cast<std::uintptr_t>(place) % 16 == 0;
  fits ? f(Int<kWidest<T>>()) : f(Int<1>());
}

}  // namespace spillway::cuda
