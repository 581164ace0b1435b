// What was typed of the run flags. Not here: how it is parsed (command_line.h), what becomes of it (resolve_options.h).
#pragma once

#include <map>
#include <string>
#include <vector>

namespace spillway {

struct RawFlags {
  std::map<std::string, std::vector<std::string>> given;  // by flag name without its dashes
  bool print_config = false;
};

}  // namespace spillway
