// A file that is part of the program (cmake/embed.cmake). Not here: which files are; the headers that declare them say it.
#pragma once

#include <span>
#include <string_view>

namespace spillway {

struct EmbeddedFile {
  std::string_view name;  // without its ending
  std::string_view text;
};

}  // namespace spillway
