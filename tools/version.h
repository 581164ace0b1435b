// The version of the program, which is the project's (CMakeLists.txt).
// Not here: versions of file formats; each format has its own.
#pragma once

#include <string_view>

namespace spillway {

inline constexpr std::string_view kVersion = "spillway " SPILLWAY_VERSION;

}  // namespace spillway
