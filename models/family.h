// A family of models as one row of data: the keys of its config.json, the defaults of Hugging Face's configuration class, the
// parts that its models have, the names of tensors where families differ, and the units that its models are made of.
// Not here: reading a config.json by a row (config.h), the units (gpt2.h, llama.h).
//
// A new family whose parts all exist takes a row in family.cpp, shapes in catalogue/*.json, and a golden case in tests/data, from
// which the tests have their lists. A new part is added from its key to its kernel: its key, its default and its field in a row
// (here), its number in one model (config.h; config.cpp reads and checks it), the unit that it belongs to (llama.cpp names
// tensors; attention, mlp, embedding, head and norm_unit are the units), and, if no call says it yet, a field of a call
// (kernels.h, kernel_shapes.h) with the loops that define it (reference/) and the backends (cpu/, cuda/). No other folder of the
// program has a list of families.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace spillway {

// The meaning of a null in place of a value.
enum class NullIs : std::uint8_t {
  refused,
  absent,  // as a missing key: the default
  zero,    // as a default of 0: the value comes from other keys, or there is none
};

struct ConfigKey {
  const char* name = nullptr;   // used in messages; null: the family has no such key, and its default stands
  const char* other = nullptr;  // another spelling
  NullIs null = NullIs::refused;
};

// The keys, in the spelling of most families.
struct FamilyKeys {
  ConfigKey hidden{"hidden_size"};
  ConfigKey layers{"num_hidden_layers"};
  ConfigKey heads{"num_attention_heads"};
  ConfigKey kv_heads{.name = "num_key_value_heads", .null = NullIs::zero};
  ConfigKey head_dim{.name = "head_dim", .null = NullIs::absent};
  ConfigKey mlp_width{"intermediate_size"};
  ConfigKey vocab{"vocab_size"};
  ConfigKey max_positions{"max_position_embeddings"};
  ConfigKey norm_eps{"rms_norm_eps"};
  ConfigKey activation{.name = "hidden_act", .null = NullIs::absent};
  ConfigKey query_scalar, attention_softcap, logit_softcap;
  ConfigKey attention_multiplier, residual_multiplier, logits_scaling, embedding_multiplier;  // 1 where the file has none
  ConfigKey window_rope_theta;                                              // no key: layers with a window turn like all others
  ConfigKey padding_token{.name = "pad_token_id", .null = NullIs::absent};  // absent even where there is a default
};

struct FamilyDefaults {
  std::int64_t hidden = 0, layers = 0, heads = 0;
  std::int64_t kv_heads = 0;   // 0: as many as heads
  std::int64_t head_dim = 0;   // 0: hidden / heads
  std::int64_t mlp_width = 0;  // 0: 4 · hidden
  std::int64_t vocab = 0, max_positions = 0;
  double norm_eps = 1e-6;
  const char* activation = "silu";
  double rope_theta = 10'000, window_rope_theta = 10'000;
  double query_scalar = 0;                          // 0: head_dim
  std::int64_t padding_token = -1;                  // -1: none
  double attention_softcap = 0, logit_softcap = 0;  // 0: none
  double rotary_part = 1;                           // partial_rotary_factor
  std::int64_t original_positions = 0;              // of a scaling of RoPE; 0: the file's, or as many as there are positions
  std::int64_t unrotated_every = 0;                 // nth layers do not turn; 0: all layers turn, whatever the file says
};

// The elements of a head that turn together. Where only a part of a head turns, it is the first.
enum class RotaryPairs : std::uint8_t {
  half_apart,  // half of the part that turns
  neighbours,
};

// A feature that a key switches, or, without a key, one that is the same for every model of the family.
struct Feature {
  const char* key = nullptr;
  bool value = false;  // also where the file has no such key
};

// Tensors of a layer's norms, without ".weight"; null: none. A norm before a block is over the residual stream, one after it over
// what the block adds.
struct NormNames {
  const char* attention = "input_layernorm";  // both or neither
  const char* mlp = "post_attention_layernorm";
  const char* after_attention = nullptr;  // both or neither
  const char* after_mlp = nullptr;
};

struct FamilyExperts {
  ConfigKey count;  // experts of a layer; no key: an MLP
  std::int64_t count_default = 0, per_token_default = 0;
  ConfigKey width{"intermediate_size"};  // inner width of one expert
  std::int64_t width_default = 0;
  Feature normalised;  // the weights of a row's experts are divided by their sum
  double balance_default = 0.001;
  ConfigKey shared_width;  // inner width of the shared expert; no key: there is none
  std::int64_t shared_width_default = 0;
  bool some_layers_are_dense = false;  // mlp_only_layers and decoder_sparse_step say which
  bool stacked = false;                // the file has all experts of a layer in two tensors …
  bool transposed = false;             // … whose matrices are [in, out]
  bool biased = false;                 // the router and each expert's matrices have biases
  bool clamped_swiglu = false;         // the activation is the one of that name; swiglu_alpha and swiglu_limit must be its own
  const char* block = "mlp";           // tensors: of a layer …
  const char* router = "gate";
  const char *gate = "gate_proj", *up = "up_proj", *down = "down_proj";  // … and of one expert
};

// The layers that have sliding_window.
enum class WindowRule : std::uint8_t {
  none,               // none, whatever the file says
  every_layer,        // all alike
  from_a_layer,       // where use_sliding_window is true: those of layer_types, else those from max_window_layers on
  all_but_every_nth,  // those of layer_types, else all but every nth
  some_layers,        // those of layer_types, else all
  unrotated_layers,   // where use_sliding_window is true: those of layer_types, else those that do not turn
};
struct FamilyWindows {
  WindowRule rule = WindowRule::none;
  std::int64_t window = 0;       // sliding_window where the file has none; 0: no window
  std::int64_t first_layer = 0;  // for from_a_layer: max_window_layers where the file has none
  std::int64_t nth = 0;          // for all_but_every_nth, where the file does not say it
  ConfigKey nth_key;
};

// A key that, if true, asks for a computation that does not exist here.
struct RefusedKey {
  ConfigKey key;
  const char* problem = nullptr;  // "is true; …"
};

// What a norm of queries, or of keys, is over.
enum class QkNorm : std::uint8_t {
  none,
  each_head,  // head_dim
  all_heads,  // all of a row's queries, or all of its keys
};

// The family of units that a model is made of.
enum class UnitsOf : std::uint8_t { gpt2, llama };

struct FamilyRow {
  std::string_view model_type;    // as config.json names it
  std::string_view architecture;  // of the causal language model
  UnitsOf units = UnitsOf::llama;
  FamilyKeys keys;
  FamilyDefaults defaults;

  bool learned_positions = false;  // a row for each position, added to the token's, in place of rotary ones
  double norm_offset = 0;          // added to norms' weights: 1 in Gemma, whose weights are stored around 0
  NormNames norm_names;
  QkNorm qk_norm = QkNorm::none;  // RMSNorm on q and k, before RoPE
  RotaryPairs rotary = RotaryPairs::half_apart;
  bool turns_in_part = false;     // partial_rotary_factor may be less than 1
  bool states_rope = false;       // a file without rope_parameters means a scaling of Hugging Face's class, and is refused
  bool scaled_queries = false;    // by position, as llama_4_scaling_beta says
  bool sinks = false;             // attention has a sink a head
  bool fused_qkv = false;         // one tensor of queries, keys and values (qkv_proj)
  bool fused_gate_up = false;     // one tensor of gate and up (gate_up_proj)
  bool gelu_is_tanh = false;      // the activation gelu means its approximation
  bool gated_mlp = true;          // down(activation(gate(x)) · up(x)), of three matrices; else down(activation(up(x)))
  bool scaled_embedding = false;  // by sqrt(hidden)
  Feature qkv_bias, output_bias, mlp_bias;
  Feature tied{.key = "tie_word_embeddings", .value = false};
  Feature scale_attention{.key = nullptr, .value = true};
  Feature scale_by_inverse_layer;
  FamilyExperts experts;
  FamilyWindows windows;
  RefusedKey refused;
};

std::span<const FamilyRow> families();
const FamilyRow* find_family(std::string_view model_type);  // null if there is none

inline std::string_view name_of(const FamilyRow* family) { return family->model_type; }
std::string_view bare_name(const FamilyRow& family);  // "Mistral" of MistralForCausalLM

// Names of the families of which `is_meant` is true, in the table's order.
std::vector<std::string_view> family_names(bool (*is_meant)(const FamilyRow&));
inline bool has_experts(const FamilyRow& family) { return family.experts.count.name != nullptr; }

}  // namespace spillway
