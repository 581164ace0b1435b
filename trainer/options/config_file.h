// A configuration file: keys of the flags' names, checked for type, into what a flag's setter reads.
// Not here: the order in which files and flags win (resolve_options).
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace spillway {

// Refuses what is not one JSON object, unknown keys (with the nearest known), doubled keys, wrong types and null. `origin` is for
// messages.
std::map<std::string, std::vector<std::string>> parse_config_text(std::string_view text, const std::string& origin);

// The same of a file; a file that is not there is an InputError that names `flag`.
std::map<std::string, std::vector<std::string>> read_config_file(const std::string& path, std::string_view flag);

}  // namespace spillway
