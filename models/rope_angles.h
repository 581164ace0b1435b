// Cosines and sines of the rotary positions: constants of a model, shared by its attention units.
// Not here: the rotation itself (kernels.h).
//
// Legend: T sequence length, D head dimension.
#pragma once

#include <span>
#include <vector>

#include "models/config.h"
#include "models/kernels.h"
#include "models/model_builder.h"

namespace spillway {

// Places of the tables among a model's constants.
struct RopeTables {
  Place cosine, sine;      // float [T, D/2]
  Place q_cosine, q_sine;  // the same, of queries, where they have tables of their own
};

enum class TableOf : std::uint8_t { keys, queries };
// Pairs that do not turn have 1 and 0. T are the positions of the longest sequence: longrope's frequencies depend on it.
void fill_rope_tables(const Rope& rope, std::int64_t head_dim, std::int64_t sequence, TableOf of,
                      std::span<float> cosine /*[T,D/2]*/, std::span<float> sine /*[T,D/2]*/);

// The order of a head's rows in which its pairs lie half a head apart, as the rotation takes them, whatever pairs the file has
// and however many of a head's elements turn. For each of `heads` heads from a row on; one range where that is the file's order.
std::vector<RowRange> rows_of_heads(const Rope& rope, RotaryPairs pairs, std::int64_t first_row, std::int64_t heads,
                                    std::int64_t head_dim);

}  // namespace spillway
