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
constexpr int kMostKeys = 1'000'000;
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

// What a parser's callback sees of one document.
class KeyWatch {
 public:
  KeyWatch(const std::string& file, int max_keys, std::vector<std::string>* doubled)
      : file_(file), max_keys_(max_keys), doubled_(doubled) {}

  void see(int depth, Json::parse_event_t event, const Json& parsed) {
    if (depth > kMaxDepth) throw InputError(fmt::format("{}: its JSON is nested more than {} deep", file_, kMaxDepth));
    if (event == Json::parse_event_t::object_start) open_.emplace_back();
    if (event == Json::parse_event_t::object_end) open_.pop_back();
    if (event == Json::parse_event_t::key) see_key(parsed.get_ref<const std::string&>());
  }

 private:
  struct Object {
    std::set<std::string> keys;
    std::string last;
  };

  void see_key(const std::string& key) {
    if (++keys_ > max_keys_) throw InputError(fmt::format("{}: has more than {} keys", file_, max_keys_));
    Object& object = open_.back();
    object.last = key;
    if (object.keys.insert(key).second) return;
    if (doubled_ == nullptr)
      throw InputError(fmt::format("{}: the key {} is there twice", file_, shown_name(key)), "Leave one of them.");
    std::string path;
    for (const Object& one : open_) path += (path.empty() ? "" : ".") + one.last;
    doubled_->push_back(shown_name(path));
  }

  const std::string& file_;
  const int max_keys_;
  std::vector<std::string>* const doubled_;  // null: refuse them
  std::vector<Object> open_;
  int keys_ = 0;
};

Json parse(std::string_view text, const std::string& file, int max_keys, std::vector<std::string>* doubled) {
  KeyWatch watch(file, max_keys, doubled);
  const Json::parser_callback_t check = [&](int depth, Json::parse_event_t event, Json& parsed) {
    watch.see(depth, event, parsed);
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
  return parse(text, file, max_keys, nullptr);
}

Json parse_json_noting_doubles(std::string_view text, const std::string& file, std::vector<std::string>& doubled) {
  return parse(text, file, kMostKeys, &doubled);
}

}  // namespace spillway
