// The message for an unknown flag or configuration key: that a later version will have it, what it is called here, or which known
// name is near.
// Not here: which names are known (flag_table.h, and each command's own).
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "memory/base/error.h"

namespace spillway {

struct UnknownFlag {
  std::string_view name;               // as typed: "batch_size", "-b"; without "--" in front
  std::string said;                    // as the message calls it: "unknown flag --batch_size"
  std::span<const std::string> known;  // names of flags that could have stood there
  std::string help;                    // used if nothing better is known
};

// `where` begins the message, as in "c.json: "; it may be empty.
InputError refusal_of(const UnknownFlag& unknown, std::string_view where = {});

// The same in a few words, for lists: "--lr", "written adam-eps", "leave it out", "in a later version", "lr?" or "unknown".
std::string short_answer_to(const UnknownFlag& unknown);

}  // namespace spillway
