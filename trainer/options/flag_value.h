// The texts given for one flag, read as the type that the flag wants: text, a number, a size.
// Not here: the list of flags (flag_table.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trainer/words/size.h"

namespace spillway {

// The texts given for one flag, with the only functions that read them. Each refuses a bad value with a message that says where
// it was given, what was found and what is allowed.
class FlagValue {
 public:
  FlagValue(std::string where, std::vector<std::string> texts) : where_(std::move(where)), texts_(std::move(texts)) {}

  const std::string& text() const;  // not empty
  const std::vector<std::string>& texts() const;
  std::int64_t integer(std::int64_t least, std::int64_t most) const;
  std::uint64_t unsigned_integer() const;
  enum class Bound : std::uint8_t { included, excluded };
  double real(double least, Bound least_bound, double most, Bound most_bound) const;
  Bytes size(Bytes least, SizeUnits units = SizeUnits::binary) const;
  [[noreturn]] void refuse(std::string_view found, std::string_view allowed) const;

 private:
  std::string where_;  // "--lr", or "run.json: lr"
  std::vector<std::string> texts_;
};

}  // namespace spillway
