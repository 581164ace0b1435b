// Flags that the command has by contract and this version cannot run yet: they are refused by name, with what it can do.
// Not here: flags of which one value waits, such as --dtype fp16 (validate in options.cpp refuses the value), and those of other
// trainers (foreign_flags.h).
#pragma once

#include <span>
#include <string_view>

namespace spillway {

struct LaterFlags {
  std::string_view names;    // of one meaning, separated by blanks, without dashes in front
  std::string_view lacks;    // goes on after "--name: "
  std::string_view instead;  // a sentence
};

std::span<const LaterFlags> later_flags();

// Null where the name, with dashes or underscores, is none of them.
const LaterFlags* find_later_flag(std::string_view name);

}  // namespace spillway
