// A small model of each family, and the cuts that tests give it.
#pragma once

#include <cstdint>
#include <string>

#include "models/build.h"

namespace spillway::testing {

inline constexpr std::int64_t kSequence = 48, kBatch = 2, kVocabulary = 300;

// Small shapes with every feature somewhere; no size is a multiple of another without need.
inline ModelConfig small_config(const std::string& which) {
  ModelConfig config;
  config.hidden = 64;
  config.layers = 2;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_dim = 16;
  config.mlp_width = 208;
  config.vocab = kVocabulary;
  config.max_positions = 64;
  config.norm_eps = 1e-5;
  config.rope.theta = 10000;
  config.windows = {0, 0};
  config.initializer_range = 0.15;  // gradients that stand out of fp32's noise
  if (which == "gpt2") {
    config.family = find_family("gpt2");
    config.kv_heads = 4;
    config.rope.theta = 0;
    config.activation = Activation::gelu_tanh;
    config.qkv_bias = config.attention_output_bias = config.mlp_bias = config.tied_embeddings = true;
  } else if (which == "llama3") {
    config.rope.scaling = {RopeScaling::Kind::llama3, 8, 1, 4, 16};
    config.mlp_bias = config.attention_output_bias = config.qkv_bias = true;
  } else if (which == "mistral") {
    config.family = find_family("mistral");
    config.windows = {7, 0};
  } else if (which == "qwen2") {
    config.family = find_family("qwen2");
    config.qkv_bias = config.tied_embeddings = true;
    config.rope.scaling = {RopeScaling::Kind::linear, 4, 1, 4, 0};
  } else if (which == "qwen3") {
    config.family = find_family("qwen3");
    config.head_dim = 24;
    config.windows = {0, 16};
  } else if (which == "gemma2" || which == "gemma3") {
    config.family = find_family(which == "gemma2" ? "gemma2" : "gemma3_text");
    config.head_dim = 20;
    config.tied_embeddings = true;
    config.activation = Activation::gelu_tanh;
    config.query_scalar = 24;
    config.embedding_factor = 8;
    config.padding_token = 3;
    config.windows = {7, 0};
    if (which == "gemma2") config.attention_softcap = 5, config.logit_softcap = 4;
    if (which == "gemma3") config.window_rope = Rope{50, {}};
  }
  return config;
}

// Tiles everywhere: 5 of the vocabulary, 4 of the MLP, strips of rows that do not divide their number.
inline constexpr Cuts kManyCuts{.vocabulary_rows = 64, .mlp_columns = 64, .head_strip = 40};
inline constexpr Cuts kNoCuts{.vocabulary_rows = 1 << 20, .mlp_columns = 1 << 20, .head_strip = 1 << 20};

}  // namespace spillway::testing
