// --eval-split: how many rows of --data are held back for evaluation.
// Not here: which rows these are (trainer/data/held_back.h).
#pragma once

#include <cstdint>
#include <string>

#include "trainer/options/flag_value.h"

namespace spillway {

struct EvalSplit {
  double share = 0;       // of the rows, above 0 and below 1; 0: `rows` says how many
  std::int64_t rows = 0;  // 0: `share` says how many
  bool operator==(const EvalSplit&) const = default;

  std::int64_t of(std::int64_t all) const;  // rows held back of so many, rounded to the nearest
  std::string text() const;
};

// Reads "0.05" or "200": a number with a point or an exponent is a share, a whole one counts rows.
EvalSplit eval_split_in(const FlagValue& value);

}  // namespace spillway
