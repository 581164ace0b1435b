// Reads a configuration file, JSON or YAML: its keys are flag names, and each value is checked for its type and turned into the
// texts that the flag's setter reads.
// Not here: the order in which files and flags win (resolve_options).
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace spillway {

struct ConfigFile {
  std::map<std::string, std::vector<std::string>> given;  // texts, by flag name
  std::map<std::string, std::string> places;              // "c.yaml: line 3: lr", by flag name, for messages
};

// JSON. Refuses text that is not one object, unknown keys (with ours for those of other trainers, or the nearest known key),
// doubled keys, wrong types and null. `origin` is for messages.
ConfigFile parse_config_text(std::string_view text, const std::string& origin);

// The same of YAML: one block of keys. Numbers, true and false stand without quotes; a word without quotes is a text, too.
ConfigFile parse_yaml_config(std::string_view text, const std::string& origin);

// Reads the text from a file: YAML if its name ends in .yaml or .yml, else JSON. If the file does not exist, throws an InputError
// that names `flag`.
ConfigFile read_config_file(const std::string& path, std::string_view flag);

}  // namespace spillway
