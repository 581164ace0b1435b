// Cosines and sines of the rotary positions: constants of a model, shared by its attention units.
// Not here: the rotation itself (kernels.h).
//
// Legend: T sequence length, D head dimension.
#pragma once

#include <span>

#include "models/config.h"
#include "models/kernels.h"

namespace spillway {

// Places of the tables among a model's constants.
struct RopeTables {
  Place cosine, sine;  // float [T, D/2]
};

void fill_rope_tables(const Rope& rope, std::int64_t head_dim, std::int64_t sequence, std::span<float> cosine /*[T,D/2]*/,
                      std::span<float> sine /*[T,D/2]*/);

}  // namespace spillway
