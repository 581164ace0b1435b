#include "trainer/config_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "memory/error.h"
#include "trainer/flag_table.h"
#include "trainer/nearest_name.h"
#include "trainer/run_directory.h"

namespace spillway {
namespace {

using nlohmann::json;

constexpr std::int64_t kLargestFile = 16 << 20;
constexpr std::string_view kProgramKey = "spillway";  // what the program notes about itself in run.json

std::string shortened(const json& value) {
  std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  constexpr std::size_t kShown = 60;
  if (text.size() > kShown) text = text.substr(0, kShown) + "...";
  return text;
}

std::string line_and_column(std::string_view text, std::size_t byte) {
  const std::string_view before = text.substr(0, std::min(byte == 0 ? 0 : byte - 1, text.size()));
  const auto line = std::ranges::count(before, '\n') + 1;
  const std::size_t line_start = before.rfind('\n') == before.npos ? 0 : before.rfind('\n') + 1;
  return fmt::format("line {}, column {}", line, before.size() - line_start + 1);
}

json parse_object(std::string_view text, const std::string& origin) {
  std::set<std::string> seen;
  // nlohmann::json keeps the last of doubled keys and says nothing.
  const json::parser_callback_t refuse_doubled = [&](int depth, json::parse_event_t event, json& parsed) {
    if (event == json::parse_event_t::key && depth == 1 && !seen.insert(parsed.get<std::string>()).second) {
      throw InputError(fmt::format("{}: found key \"{}\" twice, allowed: each key once", origin, parsed.get<std::string>()));
    }
    return true;
  };
  json object;
  try {
    object = json::parse(text, refuse_doubled);
  } catch (const json::parse_error& error) {
    throw InputError(fmt::format("{}: not valid JSON at {}", origin, line_and_column(text, error.byte)));
  } catch (const json::exception&) {  // numbers out of every range
    throw InputError(fmt::format("{}: not valid JSON: a number is out of range", origin));
  }
  if (!object.is_object()) throw InputError(fmt::format("{}: found {}, allowed: one JSON object", origin, object.type_name()));
  return object;
}

std::string_view allowed_of(FlagKind kind) {
  switch (kind) {
    case FlagKind::text:
      return "a string";
    case FlagKind::integer:
      return "a whole number";
    case FlagKind::real:
      return "a number";
    case FlagKind::size:
      return "a whole number of bytes, or a string such as \"512MiB\"";
    case FlagKind::list:
      return "a string, or an array of strings";
    case FlagKind::boolean:
      return "true or false";
  }
  return "";
}

// The same texts that the command line would give.
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
  throw InputError(fmt::format("{}: found {}, allowed: {}", where, shortened(value), allowed_of(kind)));
}

}  // namespace

std::map<std::string, std::vector<std::string>> parse_config_text(std::string_view text, const std::string& origin) {
  std::map<std::string, std::vector<std::string>> given;
  for (const auto& [key, value] : parse_object(text, origin).items()) {
    if (key == kProgramKey) continue;
    const Flag* flag = find_flag(key);
    if (flag == nullptr) {
      const std::string nearest = nearest_name(key, flag_names());
      throw InputError(fmt::format("{}: found unknown key {}, allowed: the names of the flags, without dashes", origin, shortened(key)),
                       nearest.empty() ? "spillway train --help lists them" : fmt::format("did you mean \"{}\"?", nearest));
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
  return parse_config_text(read_small_file(path, kLargestFile), path);
}

}  // namespace spillway
