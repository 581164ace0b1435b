// All run flags in one table: name, type, help, and how to set and read the flag in RunOptions. The command line, the
// configuration file, run.json and --print-config all follow this table, so a new flag is a new row.
// Not here: rules between flags (validate_options.h), the calls of CLI11 (command_line.cpp).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/options/flag.h"

namespace spillway {

std::span<const Flag> flag_table();
const Flag* find_flag(std::string_view name);
std::vector<std::string> flag_names();

}  // namespace spillway
