// All run flags in one table: name, type, help, and how to set and read the flag in RunOptions. The command line, the
// configuration file, run.json and --print-config all follow this table, so a new flag is a new row.
// Not here: rules between flags (validate_options.h), the calls of CLI11 (command_line.cpp).
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/options/flag_value.h"
#include "trainer/options/options.h"

namespace spillway {

enum class FlagKind : std::uint8_t { text, integer, real, size, list, boolean };

struct Flag {
  std::string name;   // without dashes
  std::string group;  // heading in the help
  std::string value;  // name of the value in the help: SIZE, N, PATH, or the choices
  FlagKind kind;
  std::string help;  // the default is added from the options themselves
  void (*set)(RunOptions&, const FlagValue&);
  nlohmann::json (*get)(const RunOptions&);  // null: not set
};

std::span<const Flag> flag_table();
const Flag* find_flag(std::string_view name);
std::vector<std::string> flag_names();

}  // namespace spillway
