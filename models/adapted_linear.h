// The adapter of a linear layer as a part of a unit, or of a tile of one. What lies between A and B, [n,r], holds scale x A^T,
// and its gradient scale dy B: each is scaled once, where it is made. Not here: which layers have one (adapter.h), the layer's
// own product (Linear in model_builder.h).
//
// Legend: n rows of a micro-batch, r rank.
#pragma once

#include <cstdint>
#include <vector>

#include "models/model_builder.h"

namespace spillway {

// Places of an adapter's factors in the unit's adapter block, as elements; -1: the unit has no such factor.
struct AdapterPlaces {
  std::int64_t a = -1, b = -1;
  Place between;           // [n,r]; none where the layer has no adapter
  std::uint64_t site = 0;  // of its dropout
  explicit operator bool() const { return static_cast<bool>(between); }
};

// Adds one value with room, of a type, for what lies between the factors of those of a unit's layers that have an adapter.
// Returns the places, one a layer: none where it has no adapter.
std::vector<Place> add_between(ModelBuilder& builder, const std::string& unit, const std::vector<FileTensor>& weights,
                               DType type);
// Lays out both factors of a layer's adapter.
// Names the dropout of a layer's adapter, or of the part of it that begins at a column.
std::uint64_t dropout_site(const FileTensor& weight, std::int64_t column_begin);
AdapterPlaces add_adapter(BlockLayout& layout, const Compute& compute, const FileTensor& weight, Place between);
// The factors as tensors of the adapter's file.
FileTensor adapter_a(const FileTensor& weight, std::int64_t rank);
FileTensor adapter_b(const FileTensor& weight, std::int64_t rank);

// A window of rows that are wider than it, or all of them.
struct Window {
  Place place;
  std::int64_t stride = 0;  // elements
};

// into() and a_gradient() take dropped(x) in place of x, and add_back_out_of() drops as it adds.
struct AdaptedLinear {
  const Compute& compute;
  std::int64_t in, out;  // of the layer, or of a tile's part of it
  AdapterPlaces at;
  int block;         // the adapter block among the unit's; the only one that is trained
  float factor = 1;  // on the layer's result

  kernels::Product into(Place x, Place between) const;                 // between = scale x A^T
  kernels::Product out_of(Place between, Window y, DType type) const;  // y += between B^T
  kernels::Product back_into(Window dy, Place dbetween) const;         // dbetween = scale dy B
  Place dropped(PassDraft& pass, Place x) const;  // what A reads of x: x itself, or a room that dropout fills
  void add_back_out_of(PassDraft& pass, Place dbetween, Place dx, DType type) const;  // dx += dbetween A
  kernels::Product a_gradient(Place dbetween, Place x) const;
  kernels::Product b_gradient(Window dy, Place between) const;

  std::int64_t rank() const { return compute.adapter->rank; }
  std::int64_t elements_between() const { return compute.rows * rank(); }

 private:
  kernels::Dropout dropout(DType type, Place x, Place y) const;
};

}  // namespace spillway
