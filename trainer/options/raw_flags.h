// The texts typed for run flags. Not here: parsing (command_line.h), resolving (resolve_options.h).
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
