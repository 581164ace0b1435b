// JSON read with care: bounded depth and number of keys, no key twice in an object, and errors in our own words.
// Not here: what the keys mean.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace spillway {

// `file` names the text in errors (InputError).
nlohmann::json parse_strict_json(std::string_view text, const std::string& file, int max_keys = 1'000'000);

// The same, but lets keys that are there twice pass, the last one counting, and adds each to `doubled` as "block.key", in a form
// for error messages.
nlohmann::json parse_json_noting_doubles(std::string_view text, const std::string& file, std::vector<std::string>& doubled);

// A value or a name in a form for error messages: one line, short, no control characters.
std::string shown(const nlohmann::json& value);
std::string shown_name(std::string_view name);

}  // namespace spillway
