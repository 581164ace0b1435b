#include "trainer/options/config_file.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "files/posix_file.h"
#include "files/strict_json.h"
#include "files/strict_yaml.h"
#include "memory/base/error.h"
#include "trainer/options/flag_table.h"
#include "trainer/options/strange_keys.h"

namespace spillway {
namespace {

using nlohmann::json;

constexpr Bytes kLargestFile = 16 << 20;
constexpr Bytes kLargestYaml = 1 << 20;               // what people write by hand
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

std::string_view allowed_in_yaml(FlagKind kind) {
  switch (kind) {
    case FlagKind::text: return "a text";
    case FlagKind::integer: return "a whole number without quotes";
    case FlagKind::real: return "a number without quotes";
    case FlagKind::size: return "a whole number of bytes, or a size such as 512MiB";
    case FlagKind::list: return "a text, or a list of texts";
    case FlagKind::boolean: return "true or false";
  }
  return "";
}

bool is_word(const YamlValue& value) { return value.kind == YamlKind::plain || value.kind == YamlKind::quoted; }

bool is_one_of(const std::string& text, const std::array<std::string_view, 3>& spellings) {
  return std::ranges::find(spellings, text) != spellings.end();
}

// The same of YAML. Whether a word is a number is for the flag's setter to find; with quotes it is a text.
std::vector<std::string> texts_of(const YamlValue& value, FlagKind kind, const std::string& where) {
  switch (kind) {
    case FlagKind::text:
    case FlagKind::size:
      if (is_word(value)) return {value.text};
      break;
    case FlagKind::integer:
    case FlagKind::real:
      if (value.kind == YamlKind::plain) return {value.text};
      break;
    case FlagKind::list:
      if (is_word(value)) return {value.text};
      if (value.kind == YamlKind::list && std::ranges::all_of(value.values, is_word)) {
        std::vector<std::string> texts;
        for (const YamlValue& one : value.values) texts.push_back(one.text);
        return texts;
      }
      break;
    case FlagKind::boolean:
      if (value.kind != YamlKind::plain) break;
      if (is_one_of(value.text, {"true", "True", "TRUE"})) return {"true"};
      if (is_one_of(value.text, {"false", "False", "FALSE"})) return {"false"};
      break;
  }
  throw InputError(fmt::format("{}: found {}, allowed: {}", where, shown(value), allowed_in_yaml(kind)));
}

}  // namespace

ConfigFile parse_config_text(std::string_view text, const std::string& origin) {
  const json object = parse_strict_json(text, origin);
  if (!object.is_object()) throw InputError(fmt::format("{}: found {}, allowed: one JSON object", origin, shown(object)));
  StrangeKeys strange(origin);
  std::vector<std::pair<const Flag*, const json*>> known;
  for (const auto& [key, value] : object.items()) {
    if (key == kProgramKey) continue;
    const Flag* const flag = strange.flag_of({.name = key});
    if (flag != nullptr) known.emplace_back(flag, &value);
  }
  strange.refuse();
  ConfigFile file;
  for (const auto& [flag, value] : known) {
    const std::string& place = file.places[flag->name] = fmt::format("{}: {}", origin, flag->name);
    file.given[flag->name] = texts_of(*value, flag->kind, place);
  }
  return file;
}

ConfigFile parse_yaml_config(std::string_view text, const std::string& origin) {
  const YamlValue block = parse_strict_yaml(text, origin);
  if (block.kind != YamlKind::block)
    throw InputError(fmt::format("{}: line {}: found {}, allowed: one block of keys", origin, block.line, shown(block)));
  StrangeKeys strange(origin);
  std::vector<std::pair<const Flag*, std::size_t>> known;
  for (std::size_t i = 0; i < block.keys.size(); ++i) {
    const Flag* const flag = strange.flag_of(
        {.name = block.keys[i].name, .place = fmt::format("line {}: ", block.keys[i].line), .value = block.values[i].text});
    if (flag != nullptr) known.emplace_back(flag, i);
  }
  strange.refuse();
  ConfigFile file;
  for (const auto& [flag, i] : known) {
    const std::string& place = file.places[flag->name] = fmt::format("{}: line {}: {}", origin, block.keys[i].line, flag->name);
    file.given[flag->name] = texts_of(block.values[i], flag->kind, place);
  }
  return file;
}

ConfigFile read_config_file(const std::string& path, std::string_view flag) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error))
    throw InputError(fmt::format("{}: found no file {}, allowed: {}", flag, path,
                                 flag == "--load" ? "that of a run" : "a JSON or YAML file of options"));
  if (path.ends_with(".yaml") || path.ends_with(".yml")) return parse_yaml_config(read_text_file(path, kLargestYaml), path);
  return parse_config_text(read_text_file(path, kLargestFile), path);
}

}  // namespace spillway
