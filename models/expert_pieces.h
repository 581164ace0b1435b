// How an expert goes through its rows: the products of a piece, and the pieces of all rows. A backend compiles the products of
// every size beforehand.
// Not here: which rows an expert has (routing.h), what happens between the products (a backend's folder).
//
// Legend: H hidden, I inner width, m rows of a piece.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "models/kernels.h"
#include "models/routing.h"

namespace spillway::ops {

struct PieceProducts {
  DType type;
  std::int64_t m, H, I;
  bool biased;

  GemmSpec up() const { return linear_forward(type, m, H, 2 * I, biased ? Epilogue::bias : Epilogue::none); }
  // Its bias is added with the rows.
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

// The products that a call may run, of each size of piece and in each way to store; each once.
std::vector<GemmSpec> products_of(const kernels::Experts& call);
std::vector<GemmSpec> products_of(const kernels::ExpertsBackward& call);

// Calls body(first, used, products) for each piece of an expert with so many rows: it begins at row `first`, and the first `used`
// of its rows are the expert's.
template <typename Body>
void for_pieces(const ExpertsShape& shape, DType type, std::int64_t rows, const Body& body) {
  for (std::int64_t done = 0; done < rows;) {
    const std::int64_t m = piece_of(rows - done), used = std::min(m, rows - done);
    body(done, used, PieceProducts{type, m, shape.hidden, shape.width, shape.biased});
    done += used;
  }
}

}  // namespace spillway::ops
