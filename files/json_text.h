// JSON as text: writing a file of the program's, quoting a string, and parsing text that may not be JSON.
// Not here: files that somebody may have edited (strict_json.h).
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <string_view>

namespace spillway {

// The text ends with a newline; indent -1 puts it on one line. Bytes that are not UTF-8 are replaced.
std::string json_text(const nlohmann::ordered_json& json, int indent = 1);
std::string json_text(const nlohmann::json& json, int indent = 1);

// The text in quotes; bytes that are not UTF-8 are replaced.
std::string quoted_json(std::string_view text);

// The result is_discarded() if the text is not JSON.
nlohmann::json parsed_json(std::string_view text);

}  // namespace spillway
