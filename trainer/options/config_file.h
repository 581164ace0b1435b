// Reads a configuration file: its keys are flag names, and each value is checked for its type and turned into the texts that the
// flag's setter reads.
// Not here: the order in which files and flags win (resolve_options).
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace spillway {

// Refuses text that is not one JSON object, unknown keys (with the nearest known key), doubled keys, wrong types and null.
// `origin` is for messages.
std::map<std::string, std::vector<std::string>> parse_config_text(std::string_view text, const std::string& origin);

// Reads the text from a file. If the file does not exist, throws an InputError that names `flag`.
std::map<std::string, std::vector<std::string>> read_config_file(const std::string& path, std::string_view flag);

}  // namespace spillway
