#include "files/strict_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "files/placeholder.h"
#include "memory/base/error.h"

namespace spillway {
namespace {

using Json = nlohmann::json;

constexpr int kMaxDepth = 64;
constexpr std::size_t kMaxShown = 80;

std::string shortened(std::string text) {
  if (text.size() > kMaxShown) text = text.substr(0, kMaxShown) + "…";
  return text;
}

// The place of a byte as "line 3, column 7", counted from 1.
std::string place_in_text(std::string_view text, std::size_t byte) {
  const std::string_view before = text.substr(0, std::min(byte, text.size()));
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  const std::size_t line_start = before.rfind('\n');
  const std::size_t column = before.size() - (line_start == std::string_view::npos ? 0 : line_start + 1);
  return fmt::format("line {}, column {}", line, std::max<std::size_t>(column, 1));
}

}  // namespace

std::string shown(const Json& value) {
  if (value.is_object()) return fmt::format("an object of {} keys", value.size());
  if (value.is_array() && value.size() > 16) return fmt::format("a list of {} values", value.size());
  if (value.is_string()) return shown_name(value.get_ref<const std::string&>());
  return shortened(value.dump(-1, ' ', true, Json::error_handler_t::replace));
}

std::string shown_name(std::string_view name) {
  // The name is cut before escaping, because an escape sequence must not be cut in two.
  const bool cut = name.size() > kMaxShown;
  return Json(std::string(name.substr(0, kMaxShown)) + (cut ? "..." : "")).dump(-1, ' ', true, Json::error_handler_t::replace);
}

Json parse_strict_json(std::string_view text, const std::string& file, int max_keys) {
  std::vector<std::set<std::string>> open_objects;
  int keys = 0;
  const Json::parser_callback_t check = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (depth > kMaxDepth) throw InputError(fmt::format("{}: its JSON is nested more than {} deep", file, kMaxDepth));
    if (event == Json::parse_event_t::object_start) open_objects.emplace_back();
    if (event == Json::parse_event_t::object_end) open_objects.pop_back();
    if (event == Json::parse_event_t::key) {
      if (++keys > max_keys) throw InputError(fmt::format("{}: has more than {} keys", file, max_keys));
      const auto& key = parsed.get_ref<const std::string&>();
      if (!open_objects.back().insert(key).second) {
        throw InputError(fmt::format("{}: the key {} is there twice", file, shown_name(key)), "Leave one of them.");
      }
    }
    return true;
  };
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos)
    throw InputError(fmt::format("{}: is empty; JSON was expected", file));
  try {
    return Json::parse(text.begin(), text.end(), check);
  } catch (const Json::parse_error& error) {
    refuse_placeholder(file, text.substr(0, kPlaceholderBytes), static_cast<Bytes>(text.size()));
    throw InputError(fmt::format("{}: not valid JSON at {}", file, place_in_text(text, error.byte)));
  } catch (const Json::exception&) {
    throw InputError(fmt::format("{}: has a number that no 64-bit number can hold", file));
  }
}

}  // namespace spillway
