// Finds the files that paths on the command line name. Not here: the files' contents.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace spillway {

// Returns each file as given and, for a directory, its files with one of these extensions (".txt"), sorted by name so that the
// order is the same on every file system; hidden files are left out. `flag` and `allowed` are for messages.
std::vector<std::string> files_of(std::span<const std::string> paths, std::span<const std::string_view> extensions,
                                  const std::string& flag, std::string_view allowed);

}  // namespace spillway
