// Chooses the format that a command writes: from --format, else from the ending of --out's name. One rule for all commands.
// Not here: the writing.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace spillway {

// Returns one of `allowed`; the first one is the default. Throws InputError if --format names another format, or if the file has
// another format's ending and --format is not given.
std::string_view format_of_output(const std::optional<std::string>& format, const std::string& out,
                                  std::span<const std::string_view> allowed);

}  // namespace spillway
