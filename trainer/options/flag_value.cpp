#include "trainer/options/flag_value.h"

#include <fmt/core.h>

#include <charconv>
#include <cmath>
#include <limits>

#include "memory/base/error.h"

namespace spillway {

void FlagValue::refuse(std::string_view found, std::string_view allowed) const {
  throw InputError(fmt::format("{}: found \"{}\", allowed: {}", where_, found, allowed));
}

const std::string& FlagValue::text() const {
  if (texts_.size() != 1) throw InputError(fmt::format("{}: found {} values, allowed: one", where_, texts_.size()));
  if (texts_[0].empty()) refuse("", "a text that is not empty");
  return texts_[0];
}

const std::vector<std::string>& FlagValue::texts() const {
  if (texts_.empty()) throw InputError(fmt::format("{}: found no value, allowed: one or more", where_));
  for (const std::string& text : texts_) {
    if (text.empty()) refuse("", "texts that are not empty");
  }
  return texts_;
}

std::int64_t FlagValue::integer(std::int64_t least, std::int64_t most) const {
  const std::string& found = text();
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(found.data(), found.data() + found.size(), value);
  if (error != std::errc() || end != found.data() + found.size() || value < least || value > most) {
    using Limits = std::numeric_limits<std::int64_t>;
    const bool is_any = least == Limits::min() && most == Limits::max();
    refuse(found, is_any ? "a whole number of 64 bits" : fmt::format("a whole number from {} to {}", least, most));
  }
  return value;
}

std::uint64_t FlagValue::unsigned_integer() const {
  const std::string& found = text();
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(found.data(), found.data() + found.size(), value);
  if (error != std::errc() || end != found.data() + found.size()) refuse(found, "a whole number from 0 to 18446744073709551615");
  return value;
}

double FlagValue::real(double least, Bound least_bound, double most, Bound most_bound) const {
  const std::string& found = text();
  double value = 0;
  const auto [end, error] = std::from_chars(found.data(), found.data() + found.size(), value);
  const bool is_number = error == std::errc() && end == found.data() + found.size() && std::isfinite(value);
  const bool in_range = is_number && (least_bound == Bound::included ? value >= least : value > least) &&
                        (most_bound == Bound::included ? value <= most : value < most);
  if (!in_range) {
    const std::string least_text =
        std::isinf(least) ? "" : fmt::format(" {} {}", least_bound == Bound::included ? "from" : "above", least);
    const std::string most_text =
        std::isinf(most) ? "" : fmt::format(" {} {}", most_bound == Bound::included ? "to" : "and below", most);
    refuse(found, fmt::format("a finite number{}{}", least_text, most_text));
  }
  return value;
}

Bytes FlagValue::size(Bytes least, SizeUnits units) const {
  const Bytes value = parse_size(text(), where_, units);
  if (value < least) refuse(text(), fmt::format("a size of at least {} byte", least));
  return value;
}

}  // namespace spillway
