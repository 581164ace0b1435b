// Names of flags as they are mistyped and listed, for messages: the known one that is nearest, spellings, words of a list.
// Not here: any acceptance of a near name; what is not known is refused.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace spillway {

// Empty where nothing is near: more than a third of the letters would have to change.
std::string nearest_name(std::string_view name, std::span<const std::string> known);

// "learning_rate" as flags are written: "learning-rate".
std::string with_dashes(std::string_view name);

// Whether a list of words, separated by blanks, has this one.
bool has_word(std::string_view words, std::string_view word);

}  // namespace spillway
