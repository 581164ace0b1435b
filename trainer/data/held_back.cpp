#include "trainer/data/held_back.h"

#include <fmt/core.h>

#include "memory/base/error.h"
#include "trainer/data/data_order.h"
#include "trainer/words/quantity.h"

namespace spillway {

std::vector<bool> rows_held_back(const EvalSplit& split, std::int64_t rows, std::uint64_t seed) {
  const std::int64_t held = split.of(rows);
  if (held <= 0 || held >= rows) {
    throw InputError(fmt::format("--eval-split: found {}, which holds back {} of the {} of --data, allowed: at least one, and "
                                 "fewer than all",
                                 split.text(), held <= 0 ? "none" : "all", counted(rows, "row")),
                     "A number with a point is a share of the rows, a whole number counts them.");
  }
  // No epoch has this number, nor do packs (packing.cpp).
  constexpr std::uint64_t kNoEpoch = ~std::uint64_t{1};
  const Permutation permutation(static_cast<std::uint64_t>(rows), seed, kNoEpoch);
  std::vector<bool> is_held(static_cast<std::size_t>(rows));
  for (std::int64_t i = 0; i < held; ++i) is_held[permutation.at(static_cast<std::uint64_t>(i))] = true;
  return is_held;
}

}  // namespace spillway
