// The tokenizers of tests/data, and what they make of a text.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "tests/trainer/temporary_directory.h"
#include "trainer/text/tokenizer.h"

namespace spillway {

inline const std::string kTokenizers = SPILLWAY_TEST_DATA "/tokenizers/";

inline nlohmann::json read_json(const std::string& path) { return nlohmann::json::parse(content_of(path)); }

inline std::vector<std::int32_t> encoded(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<std::int32_t> ids;
  tokenizer.encode(text, ids);
  return ids;
}

}  // namespace spillway
