// JSON as text: a file of the program's, a string's spelling, and text that may be none.
// Not here: files that somebody may have edited (strict_json.h).
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <string_view>

namespace spillway {

// With a newline at the end; indent -1: on one line. Bytes that are no UTF-8 are replaced.
std::string json_text(const nlohmann::ordered_json& json, int indent = 1);
std::string json_text(const nlohmann::json& json, int indent = 1);

// With its quotes, and what is no UTF-8 replaced.
std::string quoted_json(std::string_view text);

// is_discarded() where the text is no JSON.
nlohmann::json parsed_json(std::string_view text);

}  // namespace spillway
