#include "models/cpu/experts/experts.h"

#include <algorithm>

#include "models/cpu/experts/routing_ops.h"

namespace spillway::ops {
namespace {

DType type_of(const float*) { return DType::float32; }
DType type_of(const BFloat16*) { return DType::bfloat16; }

// The products of one piece of m rows.
struct PieceProducts {
  DType type;
  std::int64_t m, H, I;

  GemmSpec up() const { return linear_forward(type, m, H, 2 * I); }
  GemmSpec down() const {
    GemmSpec spec = linear_forward(type, m, I, H);
    spec.output = DType::float32;
    return spec;
  }
  GemmSpec dh() const { return linear_input_gradient(type, m, I, H, type); }
  GemmSpec dx() const { return linear_input_gradient(type, m, H, 2 * I, DType::float32); }
  GemmSpec down_gradient(Store store) const { return linear_weight_gradient(type, m, I, H, store); }
  GemmSpec up_gradient(Store store) const { return linear_weight_gradient(type, m, H, 2 * I, store); }
};

template <typename Visit>
void for_piece_sizes(const auto& call, const Visit& visit) {
  for (const std::int64_t rows : kPieceRows) {
    if (rows <= call.shape.most_rows()) visit(PieceProducts{call.type, rows, call.shape.hidden, call.shape.width});
  }
}

// Calls body(places, used, products) for each piece of an expert's rows.
template <typename Body>
void for_pieces(const ExpertsShape& shape, const Routing& routing, std::int64_t expert, DType type, const Body& body) {
  const std::int32_t* const places = routing.places + routing.begins[expert];
  const std::int64_t rows = routing.begins[expert + 1] - routing.begins[expert];
  for (std::int64_t done = 0; done < rows;) {
    const std::int64_t m = piece_of(rows - done), used = std::min(m, rows - done);
    body(places + done, used, PieceProducts{type, m, shape.hidden, shape.width});
    done += used;
  }
}

}  // namespace

std::vector<GemmSpec> products_of(const kernels::Experts& call) {
  std::vector<GemmSpec> products;
  for_piece_sizes(call, [&](const PieceProducts& of) { products.insert(products.end(), {of.up(), of.down()}); });
  return products;
}

std::vector<GemmSpec> products_of(const kernels::ExpertsBackward& call) {
  std::vector<GemmSpec> products;
  for_piece_sizes(call, [&](const PieceProducts& of) {
    products.insert(products.end(), {of.up(), of.dh(), of.dx()});
    if (!call.gradients) return;
    for (const Store store : {Store::write, Store::add})
      products.insert(products.end(), {of.down_gradient(store), of.up_gradient(store)});
  });
  return products;
}

template <typename E>
void experts_forward(const ThreadPool& pool, MatmulEngine& engine, const ExpertsShape& shape, Activation activation, const E* x,
                     const Routing& routing, const E* weights, float* sum, const ExpertsRooms<E>& rooms) {
  const std::int64_t H = shape.hidden, k = shape.router.places();
  for (std::int64_t i = 0; i < shape.count; ++i) {
    const E* const up = weights + i * shape.stride();
    for_pieces(shape, routing, shape.first + i, type_of(x),
               [&](const std::int32_t* places, std::int64_t used, const PieceProducts& products) {
                 gather_rows(pool, products.m, used, H, k, places, x, rooms.rows);
                 engine.run(pool, products.up(), {.a = rooms.rows, .b = up, .c = rooms.up}, rooms.scratch);
                 gated_forward(pool, activation, products.m, shape.width, rooms.up, rooms.h);
                 engine.run(pool, products.down(), {.a = rooms.h, .b = up + shape.down(), .c = rooms.out}, rooms.scratch);
                 add_rows(pool, used, H, k, places, routing.weights, rooms.out, sum);
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
    float* const dup = gradients.weights == nullptr ? nullptr : gradients.weights + i * shape.stride();
    Store store = gradients.store;
    for_pieces(shape, routing, shape.first + i, type_of(x),
               [&](const std::int32_t* places, std::int64_t used, const PieceProducts& products) {
                 gather_rows(pool, products.m, used, H, k, places, x, rooms.rows);
                 gather_rows(pool, products.m, used, H, k, places, dy, rooms.drows);
                 engine.run(pool, products.up(), {.a = rooms.rows, .b = up, .c = rooms.up}, rooms.scratch);
                 engine.run(pool, products.dh(), {.a = rooms.drows, .b = up + shape.down(), .c = rooms.dh}, rooms.scratch);
                 gated_backward(pool, activation, products.m, I, rooms.dh, rooms.up, rooms.dup, rooms.h);
                 weigh_rows(pool, used, I, places, routing.weights, rooms.dh, rooms.h, rooms.dup, gradients.routing);
                 if (dup != nullptr) {
                   engine.run(pool, products.down_gradient(store), {.a = rooms.drows, .b = rooms.h, .c = dup + shape.down()},
                              rooms.scratch);
                   engine.run(pool, products.up_gradient(store), {.a = rooms.dup, .b = rooms.rows, .c = dup}, rooms.scratch);
                   store = Store::add;
                 }
                 engine.run(pool, products.dx(), {.a = rooms.dup, .b = up, .c = rooms.out}, rooms.scratch);
                 add_rows(pool, used, H, k, places, nullptr, rooms.out, gradients.x);
               });
    // An expert that no row came to has a gradient, too: AdamW decays it and its moments.
    const bool met = routing.begins[shape.first + i + 1] > routing.begins[shape.first + i];
    if (!met && dup != nullptr && store == Store::write) fill_zero(pool, 3 * I * H * static_cast<Bytes>(sizeof(float)), dup);
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
