// Flags that belong to the command's contract but that this version cannot run yet. The message refuses them by name and says
// what this version can do.
// Not here: flags with one value that waits, such as --sum-groups above 1 (validate_options.cpp refuses them), flags of other
// trainers (foreign_flags.h).
#pragma once

#include <span>
#include <string_view>

namespace spillway {

struct LaterFlags {
  std::string_view names;    // names with one meaning, separated by blanks, without dashes in front
  std::string_view lacks;    // message text after "--name: "
  std::string_view instead;  // a sentence
};

std::span<const LaterFlags> later_flags();

// Null if `name`, with dashes or underscores, is not one of them.
const LaterFlags* find_later_flag(std::string_view name);

}  // namespace spillway
