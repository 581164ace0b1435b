#include "models/family.h"

#include <algorithm>

namespace spillway {
namespace {

// The part of the row that Gemma 2 and 3 share.
constexpr FamilyRow gemma(std::string_view model_type, std::string_view architecture) {
  return {.model_type = model_type,
          .architecture = architecture,
          .keys = {.kv_heads = {"num_key_value_heads"},
                   .head_dim = {"head_dim"},
                   .activation = {"hidden_activation"},  // Hugging Face ignores hidden_act, which files have too
                   .query_scalar = {"query_pre_attn_scalar"},
                   .attention_softcap = {.name = "attn_logit_softcapping", .null = NullIs::zero},
                   .logit_softcap = {.name = "final_logit_softcapping", .null = NullIs::zero}},
          .defaults = {.hidden = 2304,
                       .layers = 26,
                       .heads = 8,
                       .kv_heads = 4,
                       .head_dim = 256,
                       .mlp_width = 9216,
                       .activation = "gelu_pytorch_tanh",
                       .query_scalar = 256,
                       .padding_token = 0},
          .norm_offset = 1,
          .norm_names = {.mlp = "pre_feedforward_layernorm",
                         .after_attention = "post_attention_layernorm",
                         .after_mlp = "post_feedforward_layernorm"},
          .scaled_embedding = true,
          .qkv_bias = {"attention_bias"},
          .output_bias = {"attention_bias"},
          .tied = {"tie_word_embeddings", true},
          .windows = {.rule = WindowRule::all_but_every_nth, .window = 4096},
          .refused = {{.name = "use_bidirectional_attention", .null = NullIs::absent},
                      "is true; only causal attention is supported"}};
}

constexpr FamilyRow gemma2() {
  FamilyRow row = gemma("gemma2", "Gemma2ForCausalLM");
  row.defaults.vocab = 256000, row.defaults.max_positions = 8192;
  row.defaults.attention_softcap = 50, row.defaults.logit_softcap = 30;
  row.windows.nth = 2;
  return row;
}

constexpr FamilyRow gemma3() {
  FamilyRow row = gemma("gemma3_text", "Gemma3ForCausalLM");
  row.keys.window_rope_theta = {"rope_local_base_freq"};
  row.defaults.vocab = 262208, row.defaults.max_positions = 131072;
  row.defaults.rope_theta = 1e6;
  row.qk_norm = QkNorm::each_head;
  row.windows.nth = 6, row.windows.nth_key = {"sliding_window_pattern"};
  return row;
}

constexpr FamilyRow vaultgemma() {
  FamilyRow row = gemma("vaultgemma", "VaultGemmaForCausalLM");
  row.defaults.vocab = 256000, row.defaults.max_positions = 8192;
  row.defaults.attention_softcap = 50, row.defaults.logit_softcap = 30;
  row.norm_names = {.mlp = "pre_feedforward_layernorm"};
  row.windows.nth = 2;
  return row;
}

// The part of the row that OLMo 2 and 3 share.
constexpr FamilyRow olmo(std::string_view model_type, std::string_view architecture) {
  return {.model_type = model_type,
          .architecture = architecture,
          .defaults = {.hidden = 4096,
                       .layers = 32,
                       .heads = 32,
                       .mlp_width = 11008,
                       .vocab = 50304,
                       .max_positions = 2048,
                       .norm_eps = 1e-5,
                       .padding_token = 1},
          .norm_names = {.attention = nullptr,
                         .mlp = nullptr,
                         .after_attention = "post_attention_layernorm",
                         .after_mlp = "post_feedforward_layernorm"},
          .qk_norm = QkNorm::all_heads,
          .qkv_bias = {"attention_bias"},
          .output_bias = {"attention_bias"}};
}

constexpr FamilyRow olmo2() { return olmo("olmo2", "Olmo2ForCausalLM"); }

// A scaling of RoPE is of the layers without a window alone.
constexpr FamilyRow olmo3() {
  FamilyRow row = olmo("olmo3", "Olmo3ForCausalLM");
  row.keys.window_rope_theta = {"rope_theta"};
  row.defaults.rope_theta = row.defaults.window_rope_theta = 500'000;
  row.windows = {.rule = WindowRule::all_but_every_nth, .window = 4096, .nth = 4};
  return row;
}

// Defaults are those of the configuration classes of Hugging Face transformers 5.
constexpr FamilyRow kFamilies[] = {
    {.model_type = "gpt2",
     .architecture = "GPT2LMHeadModel",
     .units = UnitsOf::gpt2,
     // GPT-2 has its own keys for the sizes; Hugging Face also takes the common ones for them.
     .keys = {.hidden = {"n_embd", "hidden_size"},
              .layers = {"n_layer", "num_hidden_layers"},
              .heads = {"n_head", "num_attention_heads"},
              .kv_heads = {},
              .head_dim = {},
              .mlp_width = {.name = "n_inner", .null = NullIs::absent},
              .max_positions = {"n_positions", "max_position_embeddings"},
              .norm_eps = {"layer_norm_epsilon"},
              .activation = {.name = "activation_function", .null = NullIs::absent},
              .padding_token = {}},
     .defaults = {.hidden = 768,
                  .layers = 12,
                  .heads = 12,
                  .vocab = 50257,
                  .max_positions = 1024,
                  .norm_eps = 1e-5,
                  .activation = "gelu_new"},
     .learned_positions = true,
     .gated_mlp = false,
     .qkv_bias = {.value = true},
     .output_bias = {.value = true},
     .mlp_bias = {.value = true},
     .tied = {"tie_word_embeddings", true},
     .scale_attention = {"scale_attn_weights", true},
     .scale_by_inverse_layer = {"scale_attn_by_inverse_layer_idx", false},
     .refused = {{"add_cross_attention"}, "is true; a decoder that attends to an encoder is not supported"}},

    {.model_type = "llama",
     .architecture = "LlamaForCausalLM",
     .defaults = {.hidden = 4096, .layers = 32, .heads = 32, .mlp_width = 11008, .vocab = 32000, .max_positions = 2048},
     .qkv_bias = {"attention_bias"},
     .output_bias = {"attention_bias"},
     .mlp_bias = {"mlp_bias"}},

    {.model_type = "mistral",
     .architecture = "MistralForCausalLM",
     .defaults =
         {.hidden = 4096, .layers = 32, .heads = 32, .kv_heads = 8, .mlp_width = 14336, .vocab = 32000, .max_positions = 131072},
     .windows = {.rule = WindowRule::every_layer, .window = 4096}},

    {.model_type = "qwen2",
     .architecture = "Qwen2ForCausalLM",
     .defaults =
         {.hidden = 4096, .layers = 32, .heads = 32, .kv_heads = 32, .mlp_width = 22016, .vocab = 151936, .max_positions = 32768},
     .qkv_bias = {.value = true},
     .windows = {.rule = WindowRule::from_a_layer, .window = 4096, .first_layer = 28}},

    {.model_type = "qwen3",
     .architecture = "Qwen3ForCausalLM",
     .defaults = {.hidden = 4096,
                  .layers = 32,
                  .heads = 32,
                  .kv_heads = 32,
                  .head_dim = 128,
                  .mlp_width = 22016,
                  .vocab = 151936,
                  .max_positions = 32768},
     .qk_norm = QkNorm::each_head,
     .qkv_bias = {"attention_bias"},
     .output_bias = {"attention_bias"},
     .windows = {.rule = WindowRule::from_a_layer, .window = 4096, .first_layer = 28}},

    {.model_type = "mixtral",
     .architecture = "MixtralForCausalLM",
     .defaults = {.hidden = 4096,
                  .layers = 32,
                  .heads = 32,
                  .kv_heads = 8,
                  .mlp_width = 14336,
                  .vocab = 32000,
                  .max_positions = 131072,
                  .norm_eps = 1e-5,
                  .rope_theta = 1e6},
     .experts = {.count = {"num_local_experts", "num_experts"},
                 .count_default = 8,
                 .per_token_default = 2,
                 .width_default = 14336,
                 .normalised = {.value = true},
                 .block = "block_sparse_moe",
                 .gate = "w1",
                 .up = "w3",
                 .down = "w2"},
     .windows = {.rule = WindowRule::every_layer}},

    {.model_type = "qwen2_moe",
     .architecture = "Qwen2MoeForCausalLM",
     .defaults =
         {.hidden = 2048, .layers = 24, .heads = 16, .kv_heads = 16, .mlp_width = 5632, .vocab = 151936, .max_positions = 32768},
     .qkv_bias = {"qkv_bias", true},
     .experts = {.count = {"num_experts", "num_local_experts"},
                 .count_default = 60,
                 .per_token_default = 4,
                 .width = {"moe_intermediate_size"},
                 .width_default = 1408,
                 .normalised = {"norm_topk_prob"},
                 .shared_width = {"shared_expert_intermediate_size"},
                 .shared_width_default = 5632,
                 .some_layers_are_dense = true},
     .windows = {.rule = WindowRule::from_a_layer, .window = 4096, .first_layer = 28}},

    {.model_type = "qwen3_moe",
     .architecture = "Qwen3MoeForCausalLM",
     .defaults =
         {.hidden = 2048, .layers = 24, .heads = 32, .kv_heads = 4, .mlp_width = 6144, .vocab = 151936, .max_positions = 32768},
     .qk_norm = QkNorm::each_head,
     .qkv_bias = {"attention_bias"},
     .output_bias = {"attention_bias"},
     .experts = {.count = {"num_experts", "num_local_experts"},
                 .count_default = 128,
                 .per_token_default = 8,
                 .width = {"moe_intermediate_size"},
                 .width_default = 768,
                 .normalised = {"norm_topk_prob"},
                 .some_layers_are_dense = true},
     .windows = {.rule = WindowRule::from_a_layer, .window = 4096, .first_layer = 28}},

    {.model_type = "olmoe",
     .architecture = "OlmoeForCausalLM",
     .defaults = {.hidden = 2048,
                  .layers = 16,
                  .heads = 16,
                  .mlp_width = 2048,
                  .vocab = 50304,
                  .max_positions = 4096,
                  .norm_eps = 1e-5,
                  .padding_token = 1},
     .qk_norm = QkNorm::all_heads,
     .qkv_bias = {"attention_bias"},
     .output_bias = {"attention_bias"},
     .experts = {.count = {"num_experts", "num_local_experts"},
                 .count_default = 64,
                 .per_token_default = 8,
                 .width_default = 2048,
                 .normalised = {"norm_topk_prob"},
                 .balance_default = 0.01}},

    {.model_type = "phi3",
     .architecture = "Phi3ForCausalLM",
     .defaults = {.hidden = 3072,
                  .layers = 32,
                  .heads = 32,
                  .mlp_width = 8192,
                  .vocab = 32064,
                  .max_positions = 4096,
                  .norm_eps = 1e-5,
                  .padding_token = 32000,
                  .original_positions = 4096},
     .turns_in_part = true,
     .fused_qkv = true,
     .fused_gate_up = true,
     .windows = {.rule = WindowRule::every_layer}},

    {.model_type = "smollm3",
     .architecture = "SmolLM3ForCausalLM",
     .defaults = {.hidden = 2048,
                  .layers = 36,
                  .heads = 16,
                  .kv_heads = 4,
                  .mlp_width = 11008,
                  .vocab = 128256,
                  .max_positions = 32768,
                  .rope_theta = 2e6,
                  .padding_token = 128004,
                  .unrotated_every = 4},
     .qkv_bias = {"attention_bias"},
     .output_bias = {"attention_bias"},
     .mlp_bias = {"mlp_bias"},
     .tied = {"tie_word_embeddings", true},
     .windows = {.rule = WindowRule::unrotated_layers}},

    {.model_type = "ministral",
     .architecture = "MinistralForCausalLM",
     .defaults =
         {.hidden = 4096, .layers = 32, .heads = 32, .kv_heads = 8, .mlp_width = 14336, .vocab = 32000, .max_positions = 131072},
     .windows = {.rule = WindowRule::some_layers, .window = 4096}},

    {.model_type = "ministral3",
     .architecture = "Ministral3ForCausalLM",
     .defaults = {.hidden = 4096,
                  .layers = 34,
                  .heads = 32,
                  .kv_heads = 8,
                  .head_dim = 128,
                  .mlp_width = 14336,
                  .vocab = 131072,
                  .max_positions = 262144,
                  .norm_eps = 1e-5,
                  .padding_token = 11},
     .states_rope = true,
     .scaled_queries = true,
     .windows = {.rule = WindowRule::every_layer}},

    {.model_type = "granite",
     .architecture = "GraniteForCausalLM",
     .keys = {.attention_multiplier = {"attention_multiplier"},
              .residual_multiplier = {"residual_multiplier"},
              .logits_scaling = {"logits_scaling"},
              .embedding_multiplier = {"embedding_multiplier"}},
     .defaults = {.hidden = 4096, .layers = 32, .heads = 32, .mlp_width = 11008, .vocab = 32000, .max_positions = 2048},
     .qkv_bias = {"attention_bias"},
     .output_bias = {"attention_bias"},
     .mlp_bias = {"mlp_bias"}},

    {.model_type = "granitemoe",
     .architecture = "GraniteMoeForCausalLM",
     .keys = {.attention_multiplier = {"attention_multiplier"},
              .residual_multiplier = {"residual_multiplier"},
              .logits_scaling = {"logits_scaling"},
              .embedding_multiplier = {"embedding_multiplier"}},
     .defaults = {.hidden = 4096, .layers = 32, .heads = 32, .mlp_width = 11008, .vocab = 32000, .max_positions = 2048},
     .qkv_bias = {"attention_bias"},
     .output_bias = {"attention_bias"},
     .experts = {.count = {"num_local_experts", "num_experts"},
                 .count_default = 8,
                 .per_token_default = 2,
                 .width_default = 11008,
                 .normalised = {.value = true},  // a softmax of the chosen logits is the same
                 .stacked = true,
                 .block = "block_sparse_moe",
                 .router = "router.layer",
                 .up = "input_linear",
                 .down = "output_linear"}},

    {.model_type = "gpt_oss",
     .architecture = "GptOssForCausalLM",
     .defaults = {.hidden = 2880,
                  .layers = 36,
                  .heads = 64,
                  .kv_heads = 8,
                  .head_dim = 64,
                  .mlp_width = 2880,
                  .vocab = 201088,
                  .max_positions = 131072,
                  .norm_eps = 1e-5,
                  .rope_theta = 150'000},
     .states_rope = true,
     .sinks = true,
     .qkv_bias = {"attention_bias", true},
     .output_bias = {"attention_bias", true},
     .experts = {.count = {"num_local_experts", "num_experts"},
                 .count_default = 128,
                 .per_token_default = 4,
                 .width_default = 2880,
                 .normalised = {.value = true},  // a softmax of the chosen logits is the same
                 .balance_default = 0.9,
                 .stacked = true,
                 .transposed = true,
                 .biased = true,
                 .clamped_swiglu = true,
                 .router = "router",
                 .up = "experts.gate_up_proj",
                 .down = "experts.down_proj"},
     .windows = {.rule = WindowRule::all_but_every_nth, .window = 128, .nth = 2}},

    {.model_type = "seed_oss",
     .architecture = "SeedOssForCausalLM",
     .defaults = {.hidden = 4096,
                  .layers = 64,
                  .heads = 80,
                  .kv_heads = 8,
                  .head_dim = 128,
                  .mlp_width = 27648,
                  .vocab = 155136,
                  .max_positions = 524288,
                  .padding_token = 1},
     .qkv_bias = {"attention_bias", true},
     .output_bias = {"attention_out_bias"},
     .mlp_bias = {"mlp_bias"}},

    {.model_type = "glm4",
     .architecture = "Glm4ForCausalLM",
     .keys = {.kv_heads = {"num_key_value_heads"}, .head_dim = {"head_dim"}},
     .defaults = {.hidden = 4096,
                  .layers = 40,
                  .heads = 32,
                  .kv_heads = 2,
                  .head_dim = 128,
                  .mlp_width = 13696,
                  .vocab = 151552,
                  .max_positions = 131072,
                  .norm_eps = 1.5625e-7,
                  .padding_token = 151329,
                  .rotary_part = 0.5},
     .norm_names = {.after_attention = "post_self_attn_layernorm", .after_mlp = "post_mlp_layernorm"},
     .rotary = RotaryPairs::neighbours,
     .turns_in_part = true,
     .fused_gate_up = true,
     .qkv_bias = {"attention_bias", true}},

    {.model_type = "ernie4_5",
     .architecture = "Ernie4_5ForCausalLM",
     .keys = {.head_dim = {.name = "head_dim", .null = NullIs::zero}},
     .defaults = {.hidden = 1024,
                  .layers = 18,
                  .heads = 16,
                  .kv_heads = 2,
                  .head_dim = 128,
                  .mlp_width = 3072,
                  .vocab = 103424,
                  .max_positions = 131072,
                  .norm_eps = 1e-5,
                  .rope_theta = 500'000,
                  .padding_token = 0},
     .rotary = RotaryPairs::neighbours,
     .qkv_bias = {"use_bias"},
     .output_bias = {"use_bias"},
     .mlp_bias = {"use_bias"},
     .tied = {"tie_word_embeddings", true}},

    {.model_type = "gemma",
     .architecture = "GemmaForCausalLM",
     .defaults = {.hidden = 3072,
                  .layers = 28,
                  .heads = 16,
                  .kv_heads = 16,
                  .head_dim = 256,
                  .mlp_width = 24576,
                  .vocab = 256000,
                  .max_positions = 8192,
                  .activation = "gelu_pytorch_tanh",
                  .padding_token = 0},
     .norm_offset = 1,
     .gelu_is_tanh = true,
     .scaled_embedding = true,
     .qkv_bias = {"attention_bias"},
     .output_bias = {"attention_bias"},
     .tied = {"tie_word_embeddings", true},
     .refused = {{.name = "use_bidirectional_attention", .null = NullIs::absent}, "is true; only causal attention is supported"}},

    gemma2(),
    gemma3(),
    vaultgemma(),
    olmo2(),
    olmo3(),
};

}  // namespace

std::span<const FamilyRow> families() { return kFamilies; }

const FamilyRow* find_family(std::string_view model_type) {
  const auto* at = std::ranges::find(kFamilies, model_type, &FamilyRow::model_type);
  return at == std::end(kFamilies) ? nullptr : at;
}

std::string_view bare_name(const FamilyRow& family) {
  return family.architecture.substr(0, std::min(family.architecture.find("LMHead"), family.architecture.find("ForCausal")));
}

std::vector<std::string_view> family_names(bool (*is_meant)(const FamilyRow&)) {
  std::vector<std::string_view> names;
  for (const FamilyRow& family : kFamilies) {
    if (is_meant(family)) names.push_back(family.model_type);
  }
  return names;
}

}  // namespace spillway
