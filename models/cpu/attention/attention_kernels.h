// The inner loops of attention over one strip of rows, a table of functions for each compute type and instruction set, so that
// the blocking (attention_forward.cpp, attention_backward.cpp) is written once. Reductions go by units of 32 bits: one fp32
// element or a pair of bf16.
// Not here: blocks, heads, threads.
//
// Legend: D head dimension, padded to kColumns where it is a row's length; a strip is at most kStripRows rows.
#pragma once

#include <algorithm>
#include <cstdint>

#include "memory/base/bfloat16.h"

namespace spillway::ops::attention {

using Unit = std::uint32_t;

inline constexpr std::int64_t kStripRows = 6;  // rows of a register tile: 6 x 4 accumulators of 16 lanes
inline constexpr std::int64_t kColumns = 16;   // columns come in multiples of this, rows of memory at multiples of 64 bytes

enum class Start : std::uint8_t {
  write,  // from zero
  add,    // from what is there
  scale,  // from what is there times the row's factor
};

// c[rows, columns] = start + a[rows, units] b[units, columns]. a's units lie anywhere at fixed strides.
struct Product {
  const Unit* a;
  std::int64_t a_row;   // units between a's rows
  std::int64_t a_unit;  // units between a row's units
  const Unit* b;        // [units, columns]
  std::int64_t b_stride;
  float* c;  // [rows, columns]
  std::int64_t c_stride;
  std::int64_t rows;     // <= kStripRows
  std::int64_t columns;  // a multiple of kColumns
  std::int64_t units;
  Start start;
  const float* factors;  // [rows], for Start::scale
};

// Row r of a strip of scores sees the columns [begin_of(r), end + r). Neither bound falls as r grows.
struct Sight {
  std::int64_t begin;
  std::int64_t end;
  const std::int32_t* first_key = nullptr;  // of each row's document, where there are several
  std::int64_t first_keys = 0;              // entries of first_key; rows beyond only fill a strip and use the last entry
  std::int64_t first_column = 0;            // the key of column 0
  std::int64_t begin_of(std::int64_t row) const {
    if (first_key == nullptr) return begin + row;
    return std::max(begin + row, first_key[std::min(row, first_keys - 1)] - first_column);
  }
  bool all(std::int64_t rows, std::int64_t columns) const { return begin_of(rows - 1) <= 0 && end >= columns; }
};

// Turns scores into tanh(factor * score), in place. The softmax of capped scores starts from these and takes the cap as its
// scale.
struct Squash {
  float* scores;  // [rows, columns]
  std::int64_t stride;
  std::int64_t rows;
  std::int64_t columns;
  float factor;
};

// One step of the online softmax: scores in, weights out, relative to the new maximum. All in powers of 2.
template <typename E>
struct SoftmaxStep {
  float* scores;        // [rows, columns], overwritten
  std::int64_t stride;  // of scores and weights
  std::int64_t rows;
  std::int64_t columns;
  Sight sight;
  float scale;     // of the scores, log2(e) included
  float* maximum;  // [rows], of the scaled scores
  float* sums;     // [rows, kColumns]: sums of the weights by lane
  float* factors;  // [rows]: bring earlier sums and outputs to the new maximum
  E* weights;      // [rows, columns]
};

// Recomputes the softmax from its log-sum-exp and makes its gradient: p = 2^(scale s - lse), ds = p (dp - delta). For capped
// scores s is the squashed score and ds = p (dp - delta) (1 - s^2). rows is even; pairs of rows become units: [rows / unit,
// columns].
template <typename E>
struct GradientStep {
  const float* scores;     // [rows, columns]
  const float* d_weights;  // [rows, columns]
  std::int64_t stride;     // of all matrices, in their elements (units for the units)
  std::int64_t rows;
  std::int64_t columns;
  Sight sight;
  float scale;         // of the scores, log2(e) included
  const float* lse;    // [rows], to the base 2
  const float* delta;  // [rows]
  Unit* p_units;       // [rows / unit, columns]
  Unit* ds_units;      // [rows / unit, columns]
  E* ds_rows;          // [rows, columns]; not written where a unit is an element
};

// Rows of D elements at any stride, which become `padded` rows: rows beyond `rows` and elements beyond D are zero.
template <typename E>
struct RowBlock {
  const E* data;
  std::int64_t stride;
  std::int64_t rows;
  std::int64_t padded;  // even
  std::int64_t D;
};

// Rows [count, D] that are to be added up.
struct RowTerms {
  const float* data;
  std::int64_t count;
  std::int64_t stride;
};

template <typename E>
struct Kernels {
  void (*product)(const Product&);
  void (*softmax)(const SoftmaxStep<E>&);
  void (*gradient)(const GradientStep<E>&);
  void (*gradient_capped)(const GradientStep<E>&);
  // out[padded, ld]
  void (*copy_rows)(const RowBlock<E>&, E* out, std::int64_t ld);
  // out[D / unit (rounded up), ld]: the units of row r in column r
  void (*transpose)(const RowBlock<E>&, Unit* out, std::int64_t ld);
  // out[padded / unit, ld]: a unit joins elements of neighbouring rows; the D units of a row are padded to kColumns
  void (*join_rows)(const RowBlock<E>&, Unit* out, std::int64_t ld);
  // out[D] = the sum of the terms, in order, times the factor
  void (*write_sum)(const RowTerms&, float factor, std::int64_t D, E* out);
  float (*dot)(const E* x, const E* y, std::int64_t D);
};

// The functions for the best instruction set of this machine.
void squash(const Squash&);  // scores are in fp32 whatever the compute type
const Kernels<float>& kernels_fp32();
const Kernels<BFloat16>& kernels_bf16_widened();
// Null where the machine has no bf16 dot products.
const Kernels<BFloat16>* kernels_bf16_native();

}  // namespace spillway::ops::attention
