#include "models/cpu/experts/experts.h"

#include <algorithm>

#include "models/cpu/experts/routing_ops.h"
#include "models/expert_pieces.h"

namespace spillway::ops {
namespace {

DType type_of(const float*) { return DType::float32; }
DType type_of(const BFloat16*) { return DType::bfloat16; }

}  // namespace

template <typename E>
void experts_forward(const ThreadPool& pool, MatmulEngine& engine, const ExpertsShape& shape, Activation activation, const E* x,
                     const Routing& routing, const E* weights, float* sum, const ExpertsRooms<E>& rooms) {
  const std::int64_t H = shape.hidden, k = shape.router.places();
  for (std::int64_t i = 0; i < shape.count; ++i) {
    const E* const up = weights + i * shape.stride();
    const E *const up_bias = shape.biased ? up + shape.up_bias() : nullptr, *const down_bias =
                                                                                shape.biased ? up + shape.down_bias() : nullptr;
    const std::int32_t* const all = routing.places + routing.begins[shape.first + i];
    const std::int64_t rows = routing.begins[shape.first + i + 1] - routing.begins[shape.first + i];
    for_pieces(shape, type_of(x), rows, [&](std::int64_t first, std::int64_t used, const PieceProducts& products) {
      const std::int32_t* const places = all + first;
      gather_rows(pool, products.m, used, H, k, places, x, rooms.rows);
      engine.run(pool, products.up(), {.a = rooms.rows, .b = up, .c = rooms.up, .bias = up_bias}, rooms.scratch);
      gated_forward(pool, activation, products.m, shape.width, rooms.up, rooms.h);
      engine.run(pool, products.down(), {.a = rooms.h, .b = up + shape.down(), .c = rooms.out}, rooms.scratch);
      add_rows(pool, used, H, k, places, routing.weights, down_bias, rooms.out, sum);
    });
  }
}

template <typename E>
void experts_backward(const ThreadPool& pool, MatmulEngine& engine, const ExpertsShape& shape, Activation activation, const E* dy,
                      const E* x, const Routing& routing, const E* weights, const ExpertsGradients<E>& gradients,
                      const ExpertsRooms<E>& rooms) {
  const std::int64_t H = shape.hidden, I = shape.width, k = shape.router.places();
  for (std::int64_t i = shape.count; i-- > 0;) {
    const E* const up = weights + i * shape.stride();
    const E *const up_bias = shape.biased ? up + shape.up_bias() : nullptr, *const down_bias =
                                                                                shape.biased ? up + shape.down_bias() : nullptr;
    float* const dup = gradients.weights == nullptr ? nullptr : gradients.weights + i * shape.stride();
    Store store = gradients.store;
    const std::int32_t* const all = routing.places + routing.begins[shape.first + i];
    const std::int64_t rows = routing.begins[shape.first + i + 1] - routing.begins[shape.first + i];
    for_pieces(shape, type_of(x), rows, [&](std::int64_t first, std::int64_t used, const PieceProducts& products) {
      const std::int32_t* const places = all + first;
      gather_rows(pool, products.m, used, H, k, places, x, rooms.rows);
      gather_rows(pool, products.m, used, H, k, places, dy, rooms.drows);
      engine.run(pool, products.up(), {.a = rooms.rows, .b = up, .c = rooms.up, .bias = up_bias}, rooms.scratch);
      engine.run(pool, products.dh(), {.a = rooms.drows, .b = up + shape.down(), .c = rooms.dh}, rooms.scratch);
      gated_backward(pool, activation, products.m, I, rooms.dh, rooms.up, rooms.dup, rooms.h);
      weigh_rows<E>(pool, used, I, H, places, routing.weights,
                    {.h = rooms.h, .dup = rooms.dup, .dh = rooms.dh, .dy = rooms.drows, .bias = down_bias}, gradients.routing);
      if (dup != nullptr) {
        engine.run(pool, products.down_gradient(store), {.a = rooms.drows, .b = rooms.h, .c = dup + shape.down()}, rooms.scratch);
        engine.run(pool, products.up_gradient(store), {.a = rooms.dup, .b = rooms.rows, .c = dup}, rooms.scratch);
        if (shape.biased) {
          sum_rows<E>(pool, used, 2 * I, places, nullptr, rooms.dup, dup + shape.up_bias(), store);
          sum_rows<E>(pool, used, H, places, routing.weights, rooms.drows, dup + shape.down_bias(), store);
        }
        store = Store::add;
      }
      engine.run(pool, products.dx(), {.a = rooms.dup, .b = up, .c = rooms.out}, rooms.scratch);
      add_rows<E>(pool, used, H, k, places, nullptr, nullptr, rooms.out, gradients.x);
    });
    // An expert that no row came to has a gradient, too: AdamW decays it and its moments.
    if (rows == 0 && dup != nullptr && store == Store::write)
      fill_zero(pool, shape.stride() * static_cast<Bytes>(sizeof(float)), dup);
  }
}

#define SPILLWAY_INSTANTIATE(E)                                                                                              \
  template void experts_forward(const ThreadPool&, MatmulEngine&, const ExpertsShape&, Activation, const E*, const Routing&, \
                                const E*, float*, const ExpertsRooms<E>&);                                                   \
  template void experts_backward(const ThreadPool&, MatmulEngine&, const ExpertsShape&, Activation, const E*, const E*,      \
                                 const Routing&, const E*, const ExpertsGradients<E>&, const ExpertsRooms<E>&);
SPILLWAY_INSTANTIATE(float)
SPILLWAY_INSTANTIATE(BFloat16)
#undef SPILLWAY_INSTANTIATE

}  // namespace spillway::ops
