#include "trainer/options/config_file.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "files/posix_file.h"
#include "files/strict_json.h"
#include "memory/base/error.h"
#include "trainer/options/flag_table.h"
#include "trainer/options/unknown_flag.h"

namespace spillway {
namespace {

using nlohmann::json;

constexpr Bytes kLargestFile = 16 << 20;
constexpr std::string_view kProgramKey = "spillway";  // what the program notes about itself in run.json

std::string_view allowed_of(FlagKind kind) {
  switch (kind) {
    case FlagKind::text: return "a string";
    case FlagKind::integer: return "a whole number";
    case FlagKind::real: return "a number";
    case FlagKind::size: return "a whole number of bytes, or a string such as \"512MiB\"";
    case FlagKind::list: return "a string, or an array of strings";
    case FlagKind::boolean: return "true or false";
  }
  return "";
}

// The texts that the command line would give for this value.
std::vector<std::string> texts_of(const json& value, FlagKind kind, const std::string& where) {
  switch (kind) {
    case FlagKind::text:
      if (value.is_string()) return {value.get<std::string>()};
      break;
    case FlagKind::integer:
      if (value.is_number_integer()) return {value.dump()};
      break;
    case FlagKind::real:
      if (value.is_number()) return {value.dump()};
      break;
    case FlagKind::size:
      if (value.is_number_integer()) return {value.dump()};
      if (value.is_string()) return {value.get<std::string>()};
      break;
    case FlagKind::list:
      if (value.is_string()) return {value.get<std::string>()};
      if (value.is_array() && std::ranges::all_of(value, [](const json& item) { return item.is_string(); })) {
        return value.get<std::vector<std::string>>();
      }
      break;
    case FlagKind::boolean:
      if (value.is_boolean()) return {value.get<bool>() ? "true" : "false"};
      break;
  }
  throw InputError(fmt::format("{}: found {}, allowed: {}", where, shown(value), allowed_of(kind)));
}

}  // namespace

std::map<std::string, std::vector<std::string>> parse_config_text(std::string_view text, const std::string& origin) {
  std::map<std::string, std::vector<std::string>> given;
  const json object = parse_strict_json(text, origin);
  if (!object.is_object()) throw InputError(fmt::format("{}: found {}, allowed: one JSON object", origin, shown(object)));
  for (const auto& [key, value] : object.items()) {
    if (key == kProgramKey) continue;
    const Flag* flag = find_flag(key);
    if (flag == nullptr) {
      std::vector<std::string> known = flag_names();
      known.emplace_back("deepspeed-config");  // no key, but the answer to other trainers' own
      throw refusal_of({.name = key,
                        .said = fmt::format("unknown key {}", shown_name(key)),
                        .known = known,
                        .help = "keys are the names of the flags, without dashes in front: spillway train --help lists them"},
                       origin + ": ");
    }
    given[key] = texts_of(value, flag->kind, fmt::format("{}: {}", origin, key));
  }
  return given;
}

std::map<std::string, std::vector<std::string>> read_config_file(const std::string& path, std::string_view flag) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) {
    throw InputError(fmt::format("{}: found no file {}, allowed: a JSON file of options", flag, path));
  }
  return parse_config_text(read_text_file(path, kLargestFile), path);
}

}  // namespace spillway
