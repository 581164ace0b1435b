// Small configurations of each family, with changes, and reading them.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "memory/base/error.h"
#include "models/config.h"

namespace spillway {

using Json = nlohmann::json;

inline ModelConfig parse(const Json& json) { return parse_model_config(json.dump(), "config.json"); }

inline Json small(const char* model_type) {
  if (std::string_view(model_type) == "gpt2")
    return {{"model_type", "gpt2"}, {"n_embd", 48}, {"n_layer", 3}, {"n_head", 4}, {"vocab_size", 256}};
  return {{"model_type", model_type},    {"hidden_size", 64},        {"intermediate_size", 160}, {"num_hidden_layers", 4},
          {"num_attention_heads", 4},    {"num_key_value_heads", 2}, {"vocab_size", 256},        {"max_position_embeddings", 128},
          {"tie_word_embeddings", false}};
}

inline Json with(Json json, const Json& changes) {
  json.update(changes);
  return json;
}

// The error's text, or "" if there was none.
inline std::string refusal(const std::string& text) {
  try {
    static_cast<void>(parse_model_config(text, "dir/config.json"));
  } catch (const InputError& error) {
    EXPECT_EQ(error.exit_code(), 2);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("dir/config.json"));
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    return std::string(error.what()) + " | " + error.help();
  }
  return "";
}
inline std::string refusal(const Json& json) { return refusal(json.dump()); }

}  // namespace spillway
