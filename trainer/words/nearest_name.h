// Helpers for messages about flag names: the known name nearest to a mistyped one, the spelling with dashes, a search in a list
// of words.
// Not here: any acceptance of a near name; an unknown name is always refused.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace spillway {

// The known name with the fewest letters to change. Empty if even that one needs more changes than a third of `name`'s letters
// and more than two.
std::string nearest_name(std::string_view name, std::span<const std::string> known);

// "learning_rate" as flags are written: "learning-rate".
std::string with_dashes(std::string_view name);

// Returns true if `words`, a list separated by blanks, contains `word`.
bool has_word(std::string_view words, std::string_view word);

}  // namespace spillway
