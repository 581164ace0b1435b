// The help of a command, made of what CLI11 was told: lines of at most 100 columns, flags in groups, then what its words mean.
// Not here: the flags (flag_table.h, and each command's own).
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace spillway {

inline constexpr int kHelpColumns = 100;

std::string help_text(const CLI::App& app);

// What a plan's words mean, for the end of a command's help (CLI::App::footer).
std::string words_of_plans();

}  // namespace spillway
