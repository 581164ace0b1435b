// Which format a command writes: what --format says, or else what the ending of --out's name does. One rule for all commands.
// Not here: the writing.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace spillway {

// One of `allowed`, the first of which is the default. InputError where --format names another, or where the file's ending is
// that of another format and no --format says what is meant.
std::string_view format_of_output(const std::optional<std::string>& format, const std::string& out,
                                  std::span<const std::string_view> allowed);

}  // namespace spillway
