// A model's configuration: one plain, validated struct, read from a Hugging Face config.json of any age.
// Not here: the families' keys, defaults and parts (family.h), units (gpt2.h, llama.h), weights (safetensors.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "memory/base/types.h"
#include "models/activation.h"
#include "models/family.h"
#include "models/wrapper.h"

namespace spillway {

// Rotary positions: pair j of the R elements of a head that turn turns by theta^(-2j/R) a position, scaled.
struct RopeScaling {
  enum class Kind : std::uint8_t { none, linear, llama3, yarn, longrope };
  Kind kind = Kind::none;
  double factor = 1;                        // linear, llama3 and yarn
  double low_freq_factor = 1;               // llama3
  double high_freq_factor = 4;              // llama3
  std::int64_t original_max_positions = 0;  // llama3, yarn and longrope
  double attention_factor = 1;              // yarn and longrope: on cosines and sines
  double beta_fast = 32, beta_slow = 1;     // yarn
  bool truncate = true;                     // yarn: the range of pairs between the two is of whole ones
  // longrope, [R/2] each: divisors of the frequencies, of sequences up to the original positions, and of longer ones.
  std::vector<double> short_factors, long_factors;
  bool operator==(const RopeScaling&) const = default;
};
struct Rope {
  double theta = 0;  // 0: none
  RopeScaling scaling;
  std::int64_t rotated = 0;  // R, the first of a head's elements; 0: all
  double query_beta = 0;     // b: queries at position p are times 1 + b·ln(1 + floor(p / original positions)); 0: they are not
  bool operator==(const Rope&) const = default;
};

struct ModelConfig {
  const FamilyRow* family = find_family("llama");
  std::string_view wrapper;  // model_type of the checkpoint whose text half this is (wrapper.h); empty: it is all of its own

  std::int64_t hidden = 0;     // H
  std::int64_t layers = 0;     // L
  std::int64_t heads = 0;      // query heads; a multiple of kv_heads
  std::int64_t kv_heads = 0;   // key-value heads
  std::int64_t head_dim = 0;   // even where there is RoPE; heads · head_dim may differ from hidden
  std::int64_t mlp_width = 0;  // inner width of the MLP
  std::int64_t experts = 0;    // of a layer; 0: all layers have an MLP
  std::int64_t experts_per_token = 0;
  std::int64_t expert_width = 0;         // inner width of one expert
  std::int64_t shared_expert_width = 0;  // inner width of the expert to which every row goes; 0: there is none
  bool normalised_experts = false;       // the weights of a row's experts are divided by their sum
  std::vector<bool> dense_layers;        // [layers]: those that have an MLP in place of experts; empty: none has
  double balance_coefficient = 0;        // of the routers' balance loss; 0: there is none
  double router_z_coefficient = 0;       // of the mean square of the routers' log-sum-exp; 0: there is none
  std::int64_t vocab = 0;                // V
  std::int64_t max_positions = 0;        // longest sequence

  double norm_eps = 0;
  Activation activation = Activation::silu;
  Rope rope;
  std::optional<Rope> window_rope;  // of layers with a window, if they have a RoPE of their own
  std::vector<bool> unrotated;      // [layers], or none: layers whose queries and keys do not turn
  // [layers]. 0: full causal attention. W: position i sees the W positions i-W+1 … i.
  std::vector<std::int64_t> windows;

  bool qkv_bias = false;
  bool attention_output_bias = false;
  bool mlp_bias = false;
  bool tied_embeddings = false;
  bool scale_attention = true;          // gpt2: scale_attn_weights
  bool scale_by_inverse_layer = false;  // gpt2: scale_attn_by_inverse_layer_idx
  double query_scalar = 0;              // attention's factor is query_scalar^(-1/2); 0: head_dim takes its place
  double attention_multiplier = 0;      // attention's factor itself; 0: it follows from these
  double attention_softcap = 0;         // c: a score s, already scaled, becomes c · tanh(s / c) before masks; 0: none
  double logit_softcap = 0;             // the same for the head's logits
  // The token whose embedding gets no gradient where it is read, as torch.nn.Embedding's padding_idx; -1: none.
  std::int64_t padding_token = -1;
  double residual_factor = 1;   // on what a block adds to the residual stream; other than 1 only without output biases
  double logit_factor = 1;      // on the head's logits
  double embedding_factor = 1;  // on the token's embedding; exact here, Hugging Face rounds it to the embedding's type

  double initializer_range = 0.02;  // standard deviation of weights drawn from the seed
  DType stored_dtype = DType::float32;

  // Remarks for the user that do not stop the run, one sentence each; for example, that dropout in the file is not applied.
  std::vector<std::string> notes;
  // The file as it was read, so that keys unknown to us survive export.
  std::string json_text;

  bool has_experts(std::int64_t layer) const {
    return experts > 0 && (dense_layers.empty() || !dense_layers[static_cast<std::size_t>(layer)]);
  }
  std::int64_t layers_with_experts() const;
  bool is_text_half() const { return !wrapper.empty(); }
  std::string_view tensor_prefix() const { return is_text_half() ? kTextPrefix : "model."; }  // of Llama-like models
  bool rotates(std::int64_t layer) const { return unrotated.empty() || !unrotated[static_cast<std::size_t>(layer)]; }
  bool has_window_rope(std::int64_t layer) const { return window_rope && windows[static_cast<std::size_t>(layer)] > 0; }
  const Rope& rope_of(std::int64_t layer) const { return has_window_rope(layer) ? *window_rope : rope; }
  // The factor on q·k before the softmax.
  double attention_scale(std::int64_t layer) const;
};

// Of a wrapper, reads the text half. `file` names the text in errors. Throws InputError if the text is not JSON, the architecture
// is unknown, a key makes no sense, and so on.
ModelConfig parse_model_config(std::string_view json_text, const std::string& file);
ModelConfig read_model_config(const std::string& file);

// The config.json for weights stored as `stored`: every key of config.json_text, with the dtype under the key that a file of its
// age uses. That of a wrapper is the text itself where its dtype is the one that is there already.
std::string config_json(const ModelConfig& config, DType stored);

}  // namespace spillway
