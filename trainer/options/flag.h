// One run flag. Not here: all of them (flag_table.h).
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

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

}  // namespace spillway
