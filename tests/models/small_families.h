// A small model of each family that trains, and the cuts that tests give it.
// Not here: models with weights and answers (tests/golden.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/build.h"

namespace spillway::testing {

inline constexpr std::int64_t kSequence = 48, kBatch = 2, kVocabulary = 300;

// Those of the table (models/family.h), by model_type.
inline std::vector<std::string> trained_families() {
  std::vector<std::string> names;
  for (const FamilyRow& family : families()) names.emplace_back(family.model_type);
  return names;
}

inline void add_newer_parts(ModelConfig& config, const std::string& model_type) {
  if (model_type == "phi3") {
    config.rope.rotated = 12;
    config.rope.scaling = {.kind = RopeScaling::Kind::longrope,
                           .original_max_positions = 64,
                           .attention_factor = 1.2,
                           .short_factors = {1, 1.5, 2, 3, 4, 5},
                           .long_factors = {}};
  } else if (model_type == "smollm3") {
    config.unrotated = {true, false};
    config.tied_embeddings = true;
  } else if (model_type == "ministral") {
    config.windows = {0, 9};
  } else if (model_type == "ministral3") {
    config.rope.scaling = {.kind = RopeScaling::Kind::yarn,
                           .factor = 4,
                           .original_max_positions = 16,
                           .attention_factor = 1.1,
                           .beta_fast = 4,
                           .beta_slow = 0.5};
    config.rope.query_beta = 0.1;
  } else if (model_type == "granite") {
    config.attention_multiplier = 0.15;
    config.residual_factor = 0.22;
    config.logit_factor = 1.0 / 3;
    config.embedding_factor = 12;
  } else if (model_type == "seed_oss") {
    config.qkv_bias = true;
  } else if (model_type == "olmo2") {
    config.padding_token = 3;
  } else if (model_type == "olmo3") {
    config.windows = {7, 0};
    config.window_rope = Rope{50, {}};
    config.rope.scaling = {.kind = RopeScaling::Kind::yarn, .factor = 4, .original_max_positions = 16, .attention_factor = 1.1};
  } else if (model_type == "glm4") {
    config.rope.rotated = 8;
    config.qkv_bias = true;
  } else if (model_type == "ernie4_5") {
    config.qkv_bias = config.attention_output_bias = config.mlp_bias = config.tied_embeddings = true;
  }
}

inline void add_gemma_parts(ModelConfig& config, const std::string& model_type) {
  config.tied_embeddings = true;
  config.activation = Activation::gelu_tanh;
  config.embedding_factor = 8;
  config.padding_token = 3;
  if (model_type == "gemma") return;
  config.head_dim = 20;
  config.query_scalar = 24;
  config.windows = {7, 0};
  if (model_type == "gemma3_text") {
    config.window_rope = Rope{50, {}};
  } else {
    config.attention_softcap = 5, config.logit_softcap = 4;
  }
}

// Small shapes with every feature somewhere; no size is a multiple of another without need.
inline ModelConfig small_config(const std::string& model_type) {
  ModelConfig config;
  config.family = find_family(model_type);
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
  if (model_type == "gpt2") {
    config.kv_heads = 4;
    config.rope.theta = 0;
    config.activation = Activation::gelu_tanh;
    config.qkv_bias = config.attention_output_bias = config.mlp_bias = config.tied_embeddings = true;
  } else if (model_type == "llama") {
    config.rope.scaling = {RopeScaling::Kind::llama3, 8, 1, 4, 16};
    config.mlp_bias = config.attention_output_bias = config.qkv_bias = true;
  } else if (model_type == "mistral") {
    config.windows = {7, 0};
  } else if (model_type == "qwen2") {
    config.qkv_bias = config.tied_embeddings = true;
    config.rope.scaling = {RopeScaling::Kind::linear, 4, 1, 4, 0};
  } else if (model_type == "qwen3") {
    config.head_dim = 24;
    config.windows = {0, 16};
  } else if (has_experts(*config.family)) {
    config.experts = 5;
    config.experts_per_token = 2;
    config.expert_width = 40;
    config.normalised_experts = model_type != "olmoe";
    if (model_type == "granitemoe") config.residual_factor = 0.22, config.logit_factor = 0.4, config.tied_embeddings = true;
    config.router_z_coefficient = 0.01;
    if (model_type != "qwen3_moe") config.balance_coefficient = 0.02;
    if (model_type == "qwen2_moe") config.shared_expert_width = 56, config.qkv_bias = true;
    if (model_type == "qwen3_moe") config.head_dim = 24, config.dense_layers = {true, false};
    if (model_type == "gpt_oss") {
      config.activation = Activation::clamped_swiglu;
      config.windows = {9, 0};
      config.qkv_bias = config.attention_output_bias = true;
    }
  } else if (model_type.find("gemma") != std::string::npos) {
    add_gemma_parts(config, model_type);
  } else {
    add_newer_parts(config, model_type);
  }
  return config;
}

// Tiles everywhere: 5 of the vocabulary, 4 of the MLP, strips of rows that do not divide their number.
inline constexpr Cuts kManyCuts{.vocabulary_rows = 64, .mlp_columns = 64, .head_strip = 40, .experts_a_group = 2};
inline constexpr Cuts kNoCuts{.vocabulary_rows = 1 << 20, .mlp_columns = 1 << 20, .head_strip = 1 << 20};

}  // namespace spillway::testing
