// Finds the files that paths on the command line name. Not here: the files' contents.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "memory/base/parallel.h"
#include "trainer/data/data_name.h"

namespace spillway {

// Returns each file as given and, for a directory, those of its files whose kind `takes` accepts, sorted by name so that the
// order is the same on every file system. Hidden files are left out, and .json, which may be settings: such files are named by
// themselves. Throws InputError for tables, and for a directory that has the same file with and without compression. `flag` and
// `allowed` are for messages.
std::vector<std::string> files_of(const std::vector<std::string>& paths, FunctionRef<bool(DataKind)> takes,
                                  const std::string& flag, std::string_view allowed);

// The data files that `paths` name; a directory's files come sorted by name. `flag` is for messages.
std::vector<std::string> paths_of_data(const std::vector<std::string>& paths, const std::string& flag);

}  // namespace spillway
