#include "trainer/options/eval_split.h"

#include <fmt/core.h>

#include <cmath>

namespace spillway {

std::int64_t EvalSplit::of(std::int64_t all) const { return share > 0 ? std::llround(share * static_cast<double>(all)) : rows; }

std::string EvalSplit::text() const { return share > 0 ? fmt::format("{}", share) : fmt::format("{}", rows); }

EvalSplit eval_split_in(const FlagValue& value) {
  using Bound = FlagValue::Bound;
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  if (value.text().find_first_of(".eE") == std::string::npos) return {.rows = value.integer(1, kMost)};
  return {.share = value.real(0, Bound::excluded, 1, Bound::excluded)};
}

}  // namespace spillway
