#include "models/config.h"

#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

#include "files/json_text.h"
#include "files/posix_file.h"
#include "files/strict_json.h"
#include "memory/base/error.h"
#include "models/config_family.h"
#include "models/config_rope.h"
#include "models/config_section.h"
#include "models/kernel_shapes.h"

namespace spillway {
namespace {

using Json = nlohmann::json;

constexpr Bytes kMaxConfigBytes = 16 * kMiB;
constexpr int kMaxConfigKeys = 10'000;
constexpr const char* kTextConfig = "text_config";

// The largest sizes that are taken as meant. With them no count of a tensor's elements overflows 64 bits.
constexpr std::int64_t kMaxHidden = std::int64_t{1} << 20;
constexpr std::int64_t kMaxLayers = 10'000;
constexpr std::int64_t kMaxHeads = std::int64_t{1} << 16;
constexpr std::int64_t kMaxHeadDim = std::int64_t{1} << 16;
constexpr std::int64_t kMaxAttentionWidth = std::int64_t{1} << 22;  // heads · head_dim
constexpr std::int64_t kMaxMlpWidth = std::int64_t{1} << 24;
constexpr std::int64_t kMaxExperts = 1024;
constexpr std::int64_t kMaxVocab = std::int64_t{1} << 31;
constexpr std::int64_t kMaxPositions = std::int64_t{1} << 31;

void refuse_quantized(const ConfigSection& section) {
  if (!section.has("quantization_config")) return;
  const ConfigSection how(section["quantization_config"]);
  if (how.text({.name = "quant_method", .null = NullIs::absent}, "") == "mxfp4") {
    section.refuse("quantization_config", "says mxfp4: quantized weights cannot be trained",
                   "Write them as bf16: AutoModelForCausalLM.from_pretrained(NAME, "
                   "quantization_config=Mxfp4Config(dequantize=True)).save_pretrained(FOLDER), in transformers.");
  }
  section.refuse("quantization_config", "is there: quantized weights cannot be trained",
                 "Use the model's unquantized weights (F32, BF16 or F16).");
}

// Refuses keys that change the computation in a way that the family does not know.
void refuse_foreign(const ConfigSection& section, const FamilyRow& family) {
  for (const char* key : {"num_local_experts", "num_experts", "n_routed_experts"}) {
    const bool known = has_experts(family) && std::string_view(key) != "n_routed_experts";
    if (!known && section.optional_whole({key}, 0, std::numeric_limits<std::int64_t>::max()).value_or(0) > 1) {
      section.refuse(key, fmt::format("is {}: {} has no experts", shown(section[key].json()), family.model_type),
                     fmt::format("Mixtures of experts that are known are {}.", fmt::join(family_names(has_experts), " and ")));
    }
  }
  if (section.flag(family.refused.key, false)) section.refuse(family.refused.key.name, family.refused.problem);
  refuse_quantized(section);
}

Activation read_activation(const ConfigSection& section, const FamilyRow& family) {
  const ConfigKey& key = family.keys.activation;
  const std::string name = section.text(key, family.defaults.activation);
  if (family.experts.clamped_swiglu) {
    for (const auto& [number, value] : {std::pair("swiglu_alpha", kSwigluAlpha), std::pair("swiglu_limit", kSwigluLimit)}) {
      if (section.has(number) && static_cast<float>(section.real({number}, 0, 0, 1e6)) != value)
        section.refuse(number, fmt::format("is {}; only {} is supported", shown(section[number].json()), value));
    }
    if (name == "silu") return Activation::clamped_swiglu;
  }
  if (name == "silu" || name == "swish") return Activation::silu;
  if (name == "gelu_new" || name == "gelu_pytorch_tanh") return Activation::gelu_tanh;
  if (name == "gelu") return family.gelu_is_tanh ? Activation::gelu_tanh : Activation::gelu_erf;
  section.refuse(section.has(key.name) ? key.name : key.other,
                 fmt::format("is {}; silu, gelu, gelu_new and gelu_pytorch_tanh are supported", shown_name(name)));
}

bool has_dtype(const ConfigSection& section) { return section.has("dtype") || section.has("torch_dtype"); }

DType read_dtype(const ConfigSection& section) {
  std::string name = section.text({"dtype", "torch_dtype", NullIs::absent}, "float32");
  if (name.starts_with("torch.")) name = name.substr(6);
  if (name == "float32" || name == "auto") return DType::float32;
  if (name == "bfloat16") return DType::bfloat16;
  if (name == "float16") return DType::float16;
  section.refuse(section.has("dtype") ? "dtype" : "torch_dtype",
                 fmt::format("is {}; float32, bfloat16 and float16 are supported", shown_name(name)));
}

void read_windows(const ConfigSection& section, ModelConfig& config) {
  config.windows.assign(static_cast<std::size_t>(config.layers), 0);
  const FamilyWindows& has = config.family->windows;
  if (has.rule == WindowRule::none) return;

  constexpr const char* kKey = "sliding_window";
  // Where use_sliding_window decides, files also write 0 for none.
  const std::int64_t least = has.rule == WindowRule::from_a_layer ? 0 : 1;
  std::int64_t window = section.whole({.name = kKey, .null = NullIs::zero}, has.window, least, kMaxPositions);
  std::int64_t first_sliding = 0;
  if (has.rule == WindowRule::from_a_layer || has.rule == WindowRule::unrotated_layers) {
    if (!section.flag({"use_sliding_window"}, false)) window = 0;
  }
  if (has.rule == WindowRule::from_a_layer) first_sliding = section.whole({"max_window_layers"}, has.first_layer, 0, kMaxLayers);
  const bool is_mixed = has.rule == WindowRule::all_but_every_nth;
  const std::int64_t nth = is_mixed ? section.whole(has.nth_key, has.nth, 1, kMaxLayers) : 0;
  if (is_mixed && window == 0 && !section.has("layer_types")) {
    section.refuse(kKey, fmt::format("is null, but all layers except one in {} have a window", nth),
                   "Set layer_types to full_attention for each layer where none has one.");
  }
  for (std::int64_t layer = first_sliding; layer < config.layers; ++layer) {
    if (has.rule == WindowRule::unrotated_layers && config.rotates(layer)) continue;
    if (!is_mixed || (layer + 1) % nth != 0) config.windows[static_cast<std::size_t>(layer)] = window;
  }

  if (!section.has("layer_types")) return;
  const JsonPlace types = section["layer_types"];
  if (static_cast<std::int64_t>(types.size()) != config.layers)
    types.refuse(fmt::format("is {}; a list of {} names, one a layer, is allowed", shown(types.json()), config.layers));
  for (std::size_t layer = 0; layer < types.size(); ++layer) {
    const bool full = types.at(layer).json() == "full_attention";
    if (!full && types.at(layer).json() != "sliding_attention") {
      types.refuse(fmt::format("has {} for layer {}; full_attention and sliding_attention are supported",
                               shown(types.at(layer).json()), layer));
    }
    if (!full && window == 0) {
      types.refuse(fmt::format("has sliding_attention for layer {}, but there is no sliding window", layer),
                   "Set sliding_window (and, for Qwen, use_sliding_window).");
    }
    const std::int64_t stated = full ? 0 : window;
    if (has.rule == WindowRule::every_layer && stated != config.windows[layer]) {
      types.refuse(fmt::format("has full_attention for layer {}, but a {} model has its sliding_window {} in every layer", layer,
                               bare_name(*config.family), window),
                   "Set sliding_window to null where no layer has one.");
    }
    config.windows[layer] = stated;
  }
}

void note_dropout(const ConfigSection& section, ModelConfig& config) {
  for (const char* key : {"resid_pdrop", "embd_pdrop", "attn_pdrop", "attention_dropout", "hidden_dropout", "residual_dropout"}) {
    const double probability = section.has(key) ? section.real({key}, 0, 0, 1) : 0;
    if (probability > 0)
      config.notes.push_back(
          fmt::format("{} is {} in the model's configuration; training is without dropout.", key, probability));
  }
}

void read_sizes(const ConfigSection& section, ModelConfig& config) {
  const FamilyKeys& keys = config.family->keys;
  const FamilyDefaults& defaults = config.family->defaults;
  config.hidden = section.whole(keys.hidden, defaults.hidden, 1, kMaxHidden);
  config.layers = section.whole(keys.layers, defaults.layers, 1, kMaxLayers);
  config.heads = section.whole(keys.heads, defaults.heads, 1, kMaxHeads);
  config.max_positions = section.whole(keys.max_positions, defaults.max_positions, 1, kMaxPositions);
  config.vocab = section.whole(keys.vocab, defaults.vocab, 1, kMaxVocab);
  config.mlp_width = section.whole(keys.mlp_width, defaults.mlp_width, 1, kMaxMlpWidth);
  if (config.mlp_width == 0) config.mlp_width = 4 * config.hidden;
  config.kv_heads = section.whole(keys.kv_heads, defaults.kv_heads, 1, kMaxHeads);
  if (config.kv_heads == 0) config.kv_heads = config.heads;
  config.head_dim = section.whole(keys.head_dim, defaults.head_dim, 1, kMaxHeadDim);
  if (config.head_dim == 0) {
    if (config.hidden % config.heads != 0) {
      section.refuse(keys.heads.name,
                     fmt::format("is {}; it must divide {}, {}, without rest", config.heads, keys.hidden.name, config.hidden));
    }
    config.head_dim = config.hidden / config.heads;
  }
  if (config.heads % config.kv_heads != 0) {
    section.refuse(keys.kv_heads.name,
                   fmt::format("is {}; it must divide {}, {}, without rest", config.kv_heads, keys.heads.name, config.heads));
  }
  if (!config.family->learned_positions && (config.head_dim % 2 != 0 || config.head_dim > ops::kMaxRotaryHead)) {
    section.refuse(keys.head_dim.name, fmt::format("is {}; rotary positions need an even number of at most {}", config.head_dim,
                                                   ops::kMaxRotaryHead));
  }
  if (config.heads * config.head_dim > kMaxAttentionWidth) {
    section.refuse(keys.heads.name, fmt::format("is {}; times head_dim, {}, it may be at most {}", config.heads, config.head_dim,
                                                kMaxAttentionWidth));
  }
}

bool read_feature(const ConfigSection& section, const Feature& feature) { return section.flag({feature.key}, feature.value); }

// Keys by which mixtures are computed otherwise than here, and the value that changes nothing.
void refuse_other_routing(const ConfigSection& section, const FamilyExperts& experts) {
  const std::pair<const char*, Json> neutral[] = {
      {"n_group", 1},
      {"topk_group", 1},
      {"scoring_func", "softmax"},
      {"routed_scaling_factor", 1},
      {"n_shared_experts", 0},
      {"num_shared_experts", 0},
      {"shared_expert_intermediate_size", 0},
      {"first_k_dense_replace", 0},
      {"moe_layer_freq", 1},
      {"router_jitter_noise", 0},
      {"clip_qkv", nullptr},
      {"topk_method", "greedy"},
      {"norm_after_topk", false},
      {"moe_router_enable_expert_bias", false},
  };
  for (const auto& [key, value] : neutral) {
    if (experts.shared_width.name != nullptr && std::string_view(key) == experts.shared_width.name) continue;
    if (section.has(key) && section[key].json() != value)
      section.refuse(key, fmt::format("is {}; this changes how a mixture is computed, and only {} is supported",
                                      shown(section[key].json()), value.is_null() ? "null" : shown(value)));
  }
}

// Layers whose number, counted from 1, is no multiple of decoder_sparse_step are dense, and so are those of mlp_only_layers.
void read_dense_layers(const ConfigSection& section, ModelConfig& config) {
  const std::int64_t every = section.has("decoder_sparse_step") ? section.whole({"decoder_sparse_step"}, 1, 1, kMaxLayers) : 1;
  std::vector<bool> dense(static_cast<std::size_t>(config.layers), false);
  for (std::int64_t layer = 0; layer < config.layers; ++layer) dense[static_cast<std::size_t>(layer)] = (layer + 1) % every != 0;
  if (section.has("mlp_only_layers")) {
    const JsonPlace list = section["mlp_only_layers"];
    for (std::size_t i = 0; i < list.size(); ++i) {
      const std::int64_t layer = list.at(i).integer(0, kMaxLayers);
      if (layer < config.layers) dense[static_cast<std::size_t>(layer)] = true;
    }
  }
  if (std::ranges::find(dense, true) == dense.end()) return;
  if (!config.family->experts.some_layers_are_dense) {
    section.refuse(section.has("decoder_sparse_step") ? "decoder_sparse_step" : "mlp_only_layers",
                   fmt::format("leaves layers without experts; all layers of a {} model have them", bare_name(*config.family)));
  }
  if (std::ranges::find(dense, false) == dense.end()) {
    section.refuse(section.has("mlp_only_layers") ? "mlp_only_layers" : "decoder_sparse_step", "leaves no layer with experts",
                   "Such a model is a dense one.");
  }
  config.dense_layers = std::move(dense);
}

void read_experts(const ConfigSection& section, ModelConfig& config) {
  if (!has_experts(*config.family)) return;
  const FamilyExperts& experts = config.family->experts;
  config.experts = section.whole(experts.count, experts.count_default, 1, kMaxExperts);
  config.experts_per_token = section.whole({"num_experts_per_tok"}, experts.per_token_default, 1, config.experts);
  config.expert_width = section.whole(experts.width, experts.width_default, 1, kMaxMlpWidth);
  config.normalised_experts = read_feature(section, experts.normalised);
  if (config.experts * config.expert_width > kMaxMlpWidth) {
    section.refuse(experts.count.name, fmt::format("is {}; times the width of an expert, {}, it may be at most {}",
                                                   config.experts, config.expert_width, kMaxMlpWidth));
  }
  refuse_other_routing(section, experts);
  if (experts.shared_width.name != nullptr)
    config.shared_expert_width = section.whole(experts.shared_width, experts.shared_width_default, 0, kMaxMlpWidth);
  read_dense_layers(section, config);
  constexpr double kMaxCoefficient = 1e6;
  const double balance = section.real({"router_aux_loss_coef"}, experts.balance_default, 0, kMaxCoefficient);
  if (section.flag({"output_router_logits"}, false)) config.balance_coefficient = balance;
}

void set_dtype(nlohmann::ordered_json& json, DType stored) {
  const char* dtype_key = json.contains("torch_dtype") && !json.contains("dtype") ? "torch_dtype" : "dtype";
  json[dtype_key] = stored == DType::float32 ? "float32" : stored == DType::bfloat16 ? "bfloat16" : "float16";
  if (json.contains("torch_dtype") && json.contains("dtype")) json["torch_dtype"] = json["dtype"];
}

// Hugging Face gives this to the embedding as padding_idx; a negative one counts from the end.
std::int64_t read_padding_token(const ConfigSection& section, const ModelConfig& config) {
  const ConfigKey& key = config.family->keys.padding_token;
  if (key.name == nullptr || section[key.name].is_null()) return -1;
  const auto stated = section.optional_whole(key, -config.vocab, config.vocab - 1);
  const std::int64_t token = stated.value_or(config.family->defaults.padding_token);
  return stated && token < 0 ? token + config.vocab : token;
}

void read_parts(const ConfigSection& section, ModelConfig& config) {
  const FamilyRow& family = *config.family;
  const auto positive = [&](const ConfigKey& key, double fallback) { return section.real(key, fallback, 1e-6, 1e9); };
  config.norm_eps = section.real(family.keys.norm_eps, family.defaults.norm_eps, 1e-30, 1);
  config.activation = read_activation(section, family);
  config.qkv_bias = read_feature(section, family.qkv_bias);
  config.attention_output_bias = read_feature(section, family.output_bias);
  config.mlp_bias = read_feature(section, family.mlp_bias);
  config.tied_embeddings = read_feature(section, family.tied);
  config.scale_attention = read_feature(section, family.scale_attention);
  config.scale_by_inverse_layer = read_feature(section, family.scale_by_inverse_layer);
  config.query_scalar = positive(family.keys.query_scalar, family.defaults.query_scalar);
  config.attention_softcap = positive(family.keys.attention_softcap, family.defaults.attention_softcap);
  config.logit_softcap = positive(family.keys.logit_softcap, family.defaults.logit_softcap);
  const auto factor = [&](const ConfigKey& key) { return section.real(key, 1, 1e-6, 1e6); };
  config.attention_multiplier = positive(family.keys.attention_multiplier, family.keys.attention_multiplier.name != nullptr);
  config.residual_factor = factor(family.keys.residual_multiplier);
  config.logit_factor = 1 / factor(family.keys.logits_scaling);
  config.embedding_factor = factor(family.keys.embedding_multiplier);
  if (config.residual_factor != 1 && (config.attention_output_bias || config.mlp_bias)) {
    section.refuse(family.keys.residual_multiplier.name,
                   fmt::format("is {}, and there are biases; one or the other is supported", config.residual_factor));
  }
  if (family.scaled_embedding) config.embedding_factor = std::sqrt(static_cast<double>(config.hidden));
  config.padding_token = read_padding_token(section, config);
  if (family.learned_positions) return;
  read_rope(section, config);
  read_unrotated_layers(section, config);
}

}  // namespace

std::int64_t ModelConfig::layers_with_experts() const {
  return experts == 0 ? 0 : layers - std::ranges::count(dense_layers, true);
}

double ModelConfig::attention_scale(std::int64_t layer) const {
  if (attention_multiplier > 0) return attention_multiplier;
  const double scalar = query_scalar > 0 ? query_scalar : static_cast<double>(head_dim);
  const double scale = scale_attention ? 1.0 / std::sqrt(scalar) : 1.0;
  return scale_by_inverse_layer ? scale / static_cast<double>(layer + 1) : scale;
}

ModelConfig parse_model_config(std::string_view json_text, const std::string& file) {
  const Json json = parse_strict_json(json_text, file, kMaxConfigKeys);
  const ConfigSection whole(JsonPlace(json, file));
  const WrapperRow* wrapper = read_wrapper(whole);
  const ConfigSection section = wrapper != nullptr ? ConfigSection(whole[kTextConfig]) : whole;

  ModelConfig config;
  config.family = wrapper != nullptr ? read_text_family(section, *wrapper) : read_family(section);
  refuse_foreign(section, *config.family);
  read_sizes(section, config);
  read_experts(section, config);
  read_parts(section, config);
  read_windows(section, config);
  config.initializer_range = section.real({"initializer_range"}, 0.02, 0, 1);
  config.stored_dtype = read_dtype(wrapper != nullptr && !has_dtype(section) ? whole : section);
  if (wrapper != nullptr) {
    refuse_quantized(whole);
    config.wrapper = wrapper->model_type;
    config.tied_embeddings = whole.flag({config.family->tied.key}, section.flag({config.family->tied.key}, wrapper->tied));
  }
  note_dropout(section, config);
  config.json_text = std::string(json_text);
  return config;
}

ModelConfig read_model_config(const std::string& file) { return parse_model_config(read_text_file(file, kMaxConfigBytes), file); }

std::string config_json(const ModelConfig& config, DType stored) {
  SPILLWAY_CHECK(!config.json_text.empty(), "a configuration made by hand has no config.json to write");
  if (config.is_text_half() && stored == config.stored_dtype) return config.json_text;
  auto json = nlohmann::ordered_json::parse(config.json_text);
  set_dtype(json, stored);
  if (config.is_text_half()) {
    if (nlohmann::ordered_json& text = json[kTextConfig]; text.contains("dtype") || text.contains("torch_dtype"))
      set_dtype(text, stored);
    return json_text(json, 2);
  }
  json["model_type"] = config.family->model_type;
  json["architectures"] = {config.family->architecture};  // the bare model's weights are exported with their head
  return json_text(json, 2);
}

}  // namespace spillway
