// Every run flag in one table: its name, type, help, and how it is set in and read from RunOptions. The command line, the
// configuration file, run.json and --print-config all follow it, so a new flag is a new row. Not here: rules between flags
// (validate), and what CLI11 is told (command_line.cpp).
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/options.h"
#include "trainer/size.h"

namespace spillway {

enum class FlagKind : std::uint8_t { text, integer, real, size, list, boolean };

// What was said for one flag, and the only readers of it: each refuses with where it was said, what was found and what is
// allowed.
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

struct Flag {
  std::string name;   // without dashes
  std::string group;  // heading in the help
  std::string value;  // what the help calls its value: SIZE, N, PATH, or the choices
  FlagKind kind;
  std::string help;  // the default is added from the options themselves
  void (*set)(RunOptions&, const FlagValue&);
  nlohmann::json (*get)(const RunOptions&);  // null: not set
};

std::span<const Flag> flag_table();
const Flag* find_flag(std::string_view name);
std::vector<std::string> flag_names();

}  // namespace spillway
