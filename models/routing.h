// Where the rows of a micro-batch go in a mixture of experts: the shape of a router, the layout of a routing value, and the
// pieces in which an expert works on its rows. No row is ever dropped: a routing value has a place for every row and expert
// chosen. Not here: the calls (kernels.h), the code that computes them (a backend's folder).
//
// Legend: n rows, E experts, k of them a row, H hidden, I inner width of one expert.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "memory/base/types.h"
#include "memory/plan/unit.h"

namespace spillway::ops {

struct RouterShape {
  std::int64_t rows = 0;     // n
  std::int64_t experts = 0;  // E
  std::int64_t per_row = 0;  // k
  bool normalised = false;   // the weights of a row's experts are divided by their sum
  float factor = 1;          // on all weights
  // There is one expert more, the E-th, to which every row goes. Its weight is the sigmoid of a score of its own.
  bool shared = false;
  std::int64_t columns() const { return experts + (shared ? 1 : 0); }  // of the scores
  std::int64_t places() const { return per_row + (shared ? 1 : 0); }   // of a row
  friend bool operator==(const RouterShape&, const RouterShape&) = default;
};

// The parts of a routing value. Place p = i * k + j is the j-th expert of row i, k = shape.places(); a row's experts ascend.
struct Routing {
  float* weights = nullptr;         // [n,k] by place: the factor of the expert's result
  std::int32_t* experts = nullptr;  // [n,k] by place
  std::int32_t* begins = nullptr;   // [columns+1]: the sorted places of expert e are [begins[e], begins[e+1])
  std::int32_t* places = nullptr;   // [n*k]: by expert, then by row
};
inline Bytes routing_bytes(const RouterShape& shape) {
  return (3 * shape.rows * shape.places() + shape.columns() + 1) * static_cast<Bytes>(sizeof(std::int32_t));
}
inline Routing routing_at(std::byte* value, const RouterShape& shape) {
  const std::int64_t all = shape.rows * shape.places();
  auto* const words = reinterpret_cast<std::int32_t*>(value);
  return {reinterpret_cast<float*>(value), words + all, words + 2 * all, words + 2 * all + shape.columns() + 1};
}

// What all micro-batches' routers together say: counts [E] of the rows that chose each expert, sums [E] of its probabilities, and
// one sum of squares of the rows' log-sum-exp. Doubles.
constexpr std::int64_t router_totals(std::int64_t experts) { return 2 * experts + 1; }

// An expert works on its rows in pieces of these sizes, the largest first; the last one is filled up with rows of zeros. So a
// backend has few shapes to compile, and the pieces follow from the number of rows alone.
inline constexpr std::int64_t kPieceStep = 16;
inline constexpr std::array<std::int64_t, 12> kPieceRows = {16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024};

// Rows of the next piece of so many rows that are left.
constexpr std::int64_t piece_of(std::int64_t left) {
  const std::int64_t filled = (left + kPieceStep - 1) / kPieceStep * kPieceStep;
  std::int64_t rows = kPieceRows.front();
  for (const std::int64_t size : kPieceRows) {
    if (size <= filled) rows = size;
  }
  return rows;
}

// Elements with the room up to the next tensor's begin.
constexpr std::int64_t padded(std::int64_t elements) { return round_up(elements, kPieceAlignment); }

// Tensors of one expert lie together: gate [I,H] and up [I,H], which are one matrix, then down [H,I]; where there are biases,
// that of gate and up [2I], then that of down [H]; then comes the next expert. Each begins at a multiple of kPieceAlignment.
struct ExpertsShape {
  RouterShape router;
  std::int64_t hidden = 0;  // H
  std::int64_t width = 0;   // I
  std::int64_t first = 0;   // the experts of a call are [first, first + count); the shared one is a call of its own
  std::int64_t count = 0;
  bool biased = false;
  bool is_shared() const { return first == router.experts; }
  // Elements from an expert's begin to its down matrix, to its biases, and to the next expert.
  std::int64_t down() const { return padded(2 * width * hidden); }
  std::int64_t up_bias() const { return down() + padded(width * hidden); }
  std::int64_t down_bias() const { return up_bias() + (biased ? padded(2 * width) : 0); }
  std::int64_t stride() const { return down_bias() + (biased ? padded(hidden) : 0); }
  std::int64_t most_rows() const { return piece_of(router.rows); }  // of a piece
  friend bool operator==(const ExpertsShape&, const ExpertsShape&) = default;
};

}  // namespace spillway::ops
