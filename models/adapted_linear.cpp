#include "models/adapted_linear.h"

#include <cmath>
#include <utility>

#include "models/adapter.h"

namespace spillway {
namespace {

FileTensor factor_of(const FileTensor& weight, Factor factor, std::int64_t rows, std::int64_t columns) {
  return file_matrix(adapter_tensor(layer_of_weight(weight.name), factor), rows, columns);
}

Place trained(std::int64_t element) {
  return {.space = Space::gradient, .index = 0, .offset = element * static_cast<Bytes>(sizeof(float))};
}

}  // namespace

// As PEFT begins them: A is uniform within 1 / sqrt(in), which is Kaiming's with a slope of sqrt(5).
FileTensor adapter_a(const FileTensor& weight, std::int64_t rank) {
  FileTensor a = factor_of(weight, Factor::a, rank, weight.columns);
  a.initial = Initial::uniform;
  a.deviation_divisor = std::sqrt(static_cast<double>(weight.columns));
  return a;
}

FileTensor adapter_b(const FileTensor& weight, std::int64_t rank) {
  FileTensor b = factor_of(weight, Factor::b, weight.rows, rank);
  b.initial = Initial::zeros;
  b.order = weight.order;
  return b;
}

std::vector<Place> add_between(ModelBuilder& builder, const std::string& unit, const std::vector<FileTensor>& weights,
                               DType type) {
  const Compute& compute = builder.compute();
  std::vector<Place> places(weights.size());
  if (!compute.adapter) return places;
  const Bytes each = round_up(compute.rows * compute.adapter->rank * size_of(type), 64);
  Bytes bytes = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (compute.adapts(weights[i])) places[i] = {.space = Space::value, .offset = std::exchange(bytes, bytes + each)};
  }
  if (bytes == 0) return places;
  const int value = builder.add_value(unit + " between", bytes);
  for (Place& place : places) place.index = place ? value : 0;
  return places;
}

// FNV-1a of the weight's name: it depends on no graph that the weight is in.
std::uint64_t dropout_site(const FileTensor& weight, std::int64_t column_begin) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : weight.name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash + static_cast<std::uint64_t>(column_begin);
}

AdapterPlaces add_adapter(BlockLayout& layout, const Compute& compute, const FileTensor& weight, Place between) {
  const std::int64_t rank = compute.adapter->rank;
  return {.a = layout.add_stack({adapter_a(weight, rank)}),
          .b = layout.add_stack({adapter_b(weight, rank)}),
          .between = between,
          .site = dropout_site(weight, 0)};
}

kernels::Product AdaptedLinear::into(Place x, Place between) const {
  kernels::Product product{.spec = ops::linear_forward(compute.dtype, compute.rows, in, rank()),
                           .a = x,
                           .b = weight_place(compute, block, at.a),
                           .c = between};
  product.spec.scale = compute.adapter->scale;
  return product;
}

kernels::Product AdaptedLinear::out_of(Place between, Window y, DType type) const {
  kernels::Product product{.spec = ops::linear_forward(compute.dtype, compute.rows, rank(), out),
                           .sum = Sum::add,
                           .a = between,
                           .b = weight_place(compute, block, at.b),
                           .c = y.place};
  product.spec.scale = factor;
  product.spec.ldc = y.stride;
  product.spec.output = type;
  return product;
}

kernels::Product AdaptedLinear::back_into(Window dy, Place dbetween) const {
  kernels::Product product{.spec = ops::linear_input_gradient(compute.dtype, compute.rows, rank(), out, compute.dtype),
                           .a = dy.place,
                           .b = weight_place(compute, block, at.b),
                           .c = dbetween};
  product.spec.lda = dy.stride;
  product.spec.scale = compute.adapter->scale * factor;
  return product;
}

Place AdaptedLinear::dropped(PassDraft& pass, Place x) const {
  if (compute.adapter->dropout == 0) return x;
  const Place y = pass.room(compute.rows * in * compute.element());
  pass.add(dropout(compute.dtype, x, y));
  return y;
}

void AdaptedLinear::add_back_out_of(PassDraft& pass, Place dbetween, Place dx, DType type) const {
  const bool drops = compute.adapter->dropout > 0;
  kernels::Product product{.spec = ops::linear_input_gradient(compute.dtype, compute.rows, in, rank(), type),
                           .sum = drops ? Sum::write : Sum::add,
                           .a = dbetween,
                           .b = weight_place(compute, block, at.a),
                           .c = drops ? pass.room(compute.rows * in * size_of(type)) : dx};
  pass.add(product);
  if (!drops) return;
  kernels::Dropout of_dx = dropout(type, product.c, dx);
  of_dx.adds = true;
  pass.add(of_dx);
}

kernels::Dropout AdaptedLinear::dropout(DType type, Place x, Place y) const {
  return {.type = type,
          .elements = compute.rows * in,
          .mask = {.site = at.site, .probability = compute.adapter->dropout},
          .x = x,
          .y = y,
          .key = place_of(ControlWord::dropout)};
}

kernels::Product AdaptedLinear::a_gradient(Place dbetween, Place x) const {
  return {.spec = ops::linear_weight_gradient(compute.dtype, compute.rows, in, rank(), ops::Store::write),
          .sum = Sum::first_writes,
          .a = dbetween,
          .b = x,
          .c = trained(at.a)};
}

kernels::Product AdaptedLinear::b_gradient(Window dy, Place between) const {
  kernels::Product product{.spec = ops::linear_weight_gradient(compute.dtype, compute.rows, rank(), out, ops::Store::write),
                           .sum = Sum::first_writes,
                           .a = dy.place,
                           .b = between,
                           .c = trained(at.b)};
  product.spec.lda = dy.stride;
  product.spec.scale = factor;
  return product;
}

}  // namespace spillway
