// Formats the help of a command: lines of at most 100 columns, flags in groups, then the meaning of its terms.
// Not here: the flags (flag_table.h, and each command's own).
#pragma once

#include <string>
#include <vector>

namespace spillway {

inline constexpr int kHelpColumns = 100;

struct HelpOfFlag {
  std::string typed;  // "--load DIR, or DIR alone"
  std::string means;
};

struct HelpGroup {
  std::string heading;
  std::vector<HelpOfFlag> flags;
};

struct CommandHelp {
  std::string command;  // "spillway plan"
  std::string description;
  std::vector<HelpGroup> groups;
  std::string footer;
};

std::string help_text(const CommandHelp& help);

// Explains the terms of a plan, for the end of a command's help.
std::string words_of_plans();

}  // namespace spillway
