// A mixture's experts on the CPU: each takes its rows in pieces (models/routing.h), so that the products have a few shapes, which
// are compiled beforehand. Experts follow one another; threads share each product.
// Not here: which rows go where (routing_ops.h), what the calls mean (models/kernels.h).
//
// Legend: n rows, H hidden, I inner width, P elements of the call's experts. `E` is the compute type.
#pragma once

#include <cstdint>

#include "memory/base/parallel.h"
#include "models/activation.h"
#include "models/cpu/ops.h"
#include "models/routing.h"

namespace spillway::ops {

// Operands as kernels::Experts and kernels::ExpertsBackward name them. `scratch` is for the largest of the products.
template <typename E>
struct ExpertsRooms {
  E *rows = nullptr, *drows = nullptr, *up = nullptr, *dup = nullptr, *h = nullptr, *dh = nullptr;
  float* out = nullptr;
  std::byte* scratch = nullptr;
};
template <typename E>
void experts_forward(const ThreadPool& pool, MatmulEngine& engine, const ExpertsShape& shape, Activation activation,
                     const E* x /*[n,H]*/, const Routing& routing, const E* weights /*[P]*/, float* sum /*[n,H]*/,
                     const ExpertsRooms<E>& rooms);

template <typename E>
struct ExpertsGradients {
  float* weights = nullptr;  // [P]; null where the experts are not trained
  Store store = Store::write;
  float* x = nullptr;        // [n,H], added to
  float* routing = nullptr;  // [n,k]
};
template <typename E>
void experts_backward(const ThreadPool& pool, MatmulEngine& engine, const ExpertsShape& shape, Activation activation,
                      const E* dy /*[n,H]*/, const E* x /*[n,H]*/, const Routing& routing, const E* weights /*[P]*/,
                      const ExpertsGradients<E>& gradients, const ExpertsRooms<E>& rooms);

}  // namespace spillway::ops
