// The well-known shapes, as data: the keys of each model's own config.json that decide its shape and its arithmetic.
// Dropout of the GPT-2 files is 0 here, since training is without.
#include "models/catalogue/entries.h"

namespace spillway {
namespace {

constexpr CatalogueEntry kGpt2Entries[] = {
    {"gpt2-xl",
     R"({"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "vocab_size": 50257, "n_positions": 1024,
        "n_embd": 1600, "n_layer": 48, "n_head": 25, "n_inner": null, "activation_function": "gelu_new",
        "layer_norm_epsilon": 1e-05, "initializer_range": 0.02, "tie_word_embeddings": true, "bos_token_id": 50256,
        "eos_token_id": 50256, "torch_dtype": "float32", "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0})"},
};

constexpr CatalogueEntry kLlamaEntries[] = {
    {"llama-3.1-405b",
     R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 128256, "hidden_size": 16384,
        "intermediate_size": 53248, "num_hidden_layers": 126, "num_attention_heads": 128, "num_key_value_heads": 8,
        "hidden_act": "silu", "max_position_embeddings": 131072, "rms_norm_eps": 1e-05, "rope_theta": 500000.0,
        "rope_scaling": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192, "rope_type": "llama3"}, "tie_word_embeddings": false,
        "initializer_range": 0.02, "attention_bias": false, "mlp_bias": false, "bos_token_id": 128000,
        "eos_token_id": 128001, "torch_dtype": "bfloat16"})"},
};

constexpr CatalogueEntry kMistralEntries[] = {
    {"mistral-7b-v0.3",
     R"({"architectures": ["MistralForCausalLM"], "model_type": "mistral", "vocab_size": 32768, "hidden_size": 4096,
        "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
        "hidden_act": "silu", "max_position_embeddings": 32768, "rms_norm_eps": 1e-05, "rope_theta": 1000000.0,
        "rope_scaling": null, "tie_word_embeddings": false, "initializer_range": 0.02, "sliding_window": null,
        "bos_token_id": 1, "eos_token_id": 2, "torch_dtype": "bfloat16"})"},
};

constexpr CatalogueEntry kQwenEntries[] = {
    {"qwen3-32b",
     R"({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "vocab_size": 151936, "hidden_size": 5120,
        "intermediate_size": 25600, "num_hidden_layers": 64, "num_attention_heads": 64, "num_key_value_heads": 8,
        "head_dim": 128, "hidden_act": "silu", "max_position_embeddings": 40960, "rms_norm_eps": 1e-06,
        "rope_theta": 1000000.0, "rope_scaling": null, "tie_word_embeddings": false, "initializer_range": 0.02,
        "attention_bias": false, "use_sliding_window": false, "sliding_window": null, "max_window_layers": 64,
        "bos_token_id": 151643, "eos_token_id": 151645, "torch_dtype": "bfloat16"})"},
};

}  // namespace

std::span<const CatalogueEntry> gpt2_entries() { return kGpt2Entries; }
std::span<const CatalogueEntry> llama_entries() { return kLlamaEntries; }
std::span<const CatalogueEntry> mistral_entries() { return kMistralEntries; }
std::span<const CatalogueEntry> qwen_entries() { return kQwenEntries; }

}  // namespace spillway
