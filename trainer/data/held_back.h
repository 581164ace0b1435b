// Which rows --eval-split holds back: a function of their number and the seed alone, so that they are the same rows whatever the
// ranks, the batch, the order, packing, and what becomes of long or bad rows.
// Not here: the rows (token_rows.h).
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/options/eval_split.h"

namespace spillway {

// [rows] true where a row is held back; `rows` counts all that the data have, those that are left out as bad included. Throws
// InputError if none or all would be.
std::vector<bool> rows_held_back(const EvalSplit& split, std::int64_t rows, std::uint64_t seed);

}  // namespace spillway
