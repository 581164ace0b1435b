// The version of the program, from the project's (CMakeLists.txt).
// Not here: versions of files, which each format has of its own.
#pragma once

#include <string_view>

namespace spillway {

inline constexpr std::string_view kVersion = "spillway " SPILLWAY_VERSION;

}  // namespace spillway
