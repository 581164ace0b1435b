#include "files/json_text.h"

#include <nlohmann/json.hpp>

namespace spillway {
namespace {

template <typename Json>
std::string text_of(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

std::string json_text(const nlohmann::ordered_json& json, int indent) { return text_of(json, indent) + "\n"; }
std::string json_text(const nlohmann::json& json, int indent) { return text_of(json, indent) + "\n"; }

std::string quoted_json(std::string_view text) { return text_of(nlohmann::json(text), -1); }

nlohmann::json parsed_json(std::string_view text) { return nlohmann::json::parse(text, nullptr, false); }

}  // namespace spillway
