#include "models/config.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <optional>

#include "memory/error.h"
#include "models/posix_file.h"
#include "models/strict_json.h"

namespace spillway {
namespace {

using Json = nlohmann::json;

constexpr Bytes kMaxConfigBytes = 16 * kMiB;
constexpr int kMaxConfigKeys = 10'000;

// The largest sizes that are taken for meant. With them no count of elements or bytes overflows 64 bits.
constexpr std::int64_t kMaxHidden = std::int64_t{1} << 20;
constexpr std::int64_t kMaxLayers = 10'000;
constexpr std::int64_t kMaxHeads = std::int64_t{1} << 16;
constexpr std::int64_t kMaxHeadDim = std::int64_t{1} << 16;
constexpr std::int64_t kMaxAttentionWidth = std::int64_t{1} << 22;  // heads · head_dim
constexpr std::int64_t kMaxMlpWidth = std::int64_t{1} << 24;
constexpr std::int64_t kMaxExperts = 1024;
constexpr std::int64_t kMaxVocab = std::int64_t{1} << 31;
constexpr std::int64_t kMaxPositions = std::int64_t{1} << 31;
constexpr std::int64_t kMaxParameters = std::int64_t{1} << 53;

struct FamilyRow {
  Family family;
  std::string_view model_type;
  std::string_view architecture;  // of the causal language model
};
constexpr FamilyRow kFamilies[] = {
    {Family::gpt2, "gpt2", "GPT2LMHeadModel"},          {Family::llama, "llama", "LlamaForCausalLM"},
    {Family::mistral, "mistral", "MistralForCausalLM"}, {Family::qwen2, "qwen2", "Qwen2ForCausalLM"},
    {Family::qwen3, "qwen3", "Qwen3ForCausalLM"},       {Family::mixtral, "mixtral", "MixtralForCausalLM"},
    {Family::qwen3_moe, "qwen3_moe", "Qwen3MoeForCausalLM"},
};

// What Hugging Face's configuration classes take for a key that is not in the file.
struct Defaults {
  std::int64_t hidden, layers, heads, kv_heads, head_dim, mlp_width, vocab, max_positions;  // 0: from other keys
  double norm_eps;
  const char* activation;
  bool tied;
  std::int64_t window;  // 0: none
};
constexpr Defaults kDefaults[] = {
    {768, 12, 12, 0, 0, 0, 50257, 1024, 1e-5, "gelu_new", true, 0},
    {4096, 32, 32, 0, 0, 11008, 32000, 2048, 1e-6, "silu", false, 0},
    {4096, 32, 32, 8, 0, 14336, 32000, 131072, 1e-6, "silu", false, 4096},
    {4096, 32, 32, 32, 0, 22016, 151936, 32768, 1e-6, "silu", false, 4096},
    {4096, 32, 32, 32, 128, 22016, 151936, 32768, 1e-6, "silu", false, 4096},
    {4096, 32, 32, 8, 0, 14336, 32000, 131072, 1e-5, "silu", false, 0},
    {2048, 24, 32, 4, 0, 768, 151936, 32768, 1e-6, "silu", false, 4096},
};
constexpr double kDefaultRopeTheta = 10'000;
constexpr std::int64_t kDefaultMaxWindowLayers = 28;

using Names = std::initializer_list<const char*>;

// One JSON object of the file with typed, checked access. `Names` are spellings of one key; the first is ours in messages.
class Section {
 public:
  Section(const Json& object, std::string file, std::string prefix = {})
      : object_(object), file_(std::move(file)), prefix_(std::move(prefix)) {}

  bool has(const char* key) const { return object_.contains(key) && !object_[key].is_null(); }
  bool contains_null(const char* key) const { return object_.contains(key) && object_[key].is_null(); }
  const Json& operator[](const char* key) const { return object_[key]; }
  const std::string& file() const { return file_; }

  [[noreturn]] void refuse(const std::string& key, const std::string& problem, std::string help = {}) const {
    throw InputError(fmt::format("{}: {}{} {}", file_, prefix_, key, problem), std::move(help));
  }

  std::int64_t whole(Names names, std::int64_t fallback, std::int64_t low, std::int64_t high) const {
    const auto found = optional_whole(names, low, high);
    if (found) return *found;
    refuse_null(names);
    return fallback;
  }

  // Null counts as absent.
  std::optional<std::int64_t> optional_whole(Names names, std::int64_t low, std::int64_t high) const {
    const char* key = find(names);
    if (key == nullptr) return std::nullopt;
    const Json& value = object_[key];
    const bool fits = value.is_number_integer() && !(value.is_number_unsigned() && value.get<std::uint64_t>() > INT64_MAX) &&
                      value.get<std::int64_t>() >= low && value.get<std::int64_t>() <= high;
    if (!fits) refuse(key, fmt::format("is {}; a whole number from {} to {} is allowed", shown(value), low, high));
    return value.get<std::int64_t>();
  }

  double real(Names names, double fallback, double low, double high) const {
    const char* key = find(names);
    if (key == nullptr) {
      refuse_null(names);
      return fallback;
    }
    const Json& value = object_[key];
    if (!value.is_number() || !(value.get<double>() >= low && value.get<double>() <= high)) {
      refuse(key, fmt::format("is {}; a number from {} to {} is allowed", shown(value), low, high));
    }
    return value.get<double>();
  }

  bool flag(const char* key, bool fallback) const {
    if (!has(key)) {
      refuse_null({key});
      return fallback;
    }
    if (!object_[key].is_boolean()) refuse(key, fmt::format("is {}; true or false is allowed", shown(object_[key])));
    return object_[key].get<bool>();
  }

  std::string text(Names names, const std::string& fallback) const {
    const char* key = find(names);
    if (key == nullptr) return fallback;
    if (!object_[key].is_string()) refuse(key, fmt::format("is {}; a string is allowed", shown(object_[key])));
    return object_[key].get<std::string>();
  }

 private:
  // The spelling that is there and not null; two that disagree are refused rather than guessed between.
  const char* find(Names names) const {
    const char* found = nullptr;
    for (const char* name : names) {
      if (!has(name)) continue;
      if (found != nullptr && object_[found] != object_[name]) {
        refuse(found,
               fmt::format("is {}, but {} is {}; they mean the same thing", shown(object_[found]), name, shown(object_[name])));
      }
      if (found == nullptr) found = name;
    }
    return found;
  }

  void refuse_null(Names names) const {
    for (const char* name : names) {
      if (object_.contains(name)) refuse(name, "is null; a value is needed");
    }
  }

  const Json& object_;
  std::string file_;
  std::string prefix_;
};

const FamilyRow& row_of(Family family) { return kFamilies[static_cast<std::size_t>(family)]; }

std::string known_families() {
  std::string text;
  for (const FamilyRow& row : kFamilies) text += fmt::format("{}{}", text.empty() ? "" : ", ", row.model_type);
  return text;
}

bool same_letters(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

Family read_family(const Section& section) {
  std::string architecture;
  if (section.has("architectures")) {
    const Json& list = section["architectures"];
    if (!list.is_array() || (!list.empty() && !list[0].is_string())) {
      section.refuse("architectures", fmt::format("is {}; a list of names is allowed", shown(list)));
    }
    if (!list.empty()) architecture = list[0].get<std::string>();
  }
  const std::string model_type = section.text({"model_type"}, "");
  if (model_type.empty() && architecture.empty()) {
    throw InputError(fmt::format("{}: has neither model_type nor architectures, so it describes no model", section.file()),
                     fmt::format("Known are {}.", known_families()));
  }
  const std::string& named = model_type.empty() ? architecture : model_type;
  for (const FamilyRow& row : kFamilies) {
    if (model_type.empty() ? !same_letters(architecture, row.architecture) : model_type != row.model_type) continue;
    // The bare model (GPT2Model) has the same weights; a classifier has others.
    const std::string_view bare =
        row.architecture.substr(0, std::min(row.architecture.find("LMHead"), row.architecture.find("ForCausal")));
    if (!architecture.empty() && !same_letters(architecture, row.architecture) &&
        !same_letters(architecture, std::string(bare) + "Model")) {
      section.refuse("architectures", fmt::format("names {}; of {}, {} can be trained", shown_name(architecture), row.model_type,
                                                  row.architecture));
    }
    return row.family;
  }
  const char* key = model_type.empty() ? "architectures" : "model_type";
  section.refuse(key, fmt::format("is {}: unknown architecture; known are {}", shown_name(named), known_families()));
}

bool has_experts(Family family) { return family == Family::mixtral || family == Family::qwen3_moe; }

// Keys that change the computation in a way that the family does not know.
void refuse_foreign(const Section& section, Family family) {
  for (const char* key : {"num_local_experts", "num_experts", "n_routed_experts"}) {
    const bool known = has_experts(family) && std::string_view(key) != "n_routed_experts";
    if (!known && section.optional_whole({key}, 0, std::numeric_limits<std::int64_t>::max()).value_or(0) > 1) {
      section.refuse(
          key, fmt::format("is {}: {} has no experts", shown(section[key]), name_of(family)),
          fmt::format("Mixtures of experts that are known are {} and {}.", name_of(Family::mixtral), name_of(Family::qwen3_moe)));
    }
  }
  if (section.has("quantization_config")) {
    section.refuse("quantization_config", "is there: quantized weights cannot be trained",
                   "Use the model's unquantized weights (F32, BF16 or F16).");
  }
  if (section.has("partial_rotary_factor") && section.real({"partial_rotary_factor"}, 1, 0, 1) != 1) {
    section.refuse("partial_rotary_factor", fmt::format("is {}; only 1 is supported", shown(section["partial_rotary_factor"])));
  }
}

Activation read_activation(const Section& section, Names names, const char* fallback) {
  const std::string name = section.text(names, fallback);
  if (name == "silu" || name == "swish") return Activation::silu;
  if (name == "gelu_new" || name == "gelu_pytorch_tanh") return Activation::gelu_tanh;
  if (name == "gelu") return Activation::gelu_erf;
  section.refuse(*names.begin(),
                 fmt::format("is {}; silu, gelu, gelu_new and gelu_pytorch_tanh are supported", shown_name(name)));
}

DType read_dtype(const Section& section) {
  std::string name = section.text({"dtype", "torch_dtype"}, "float32");
  if (name.starts_with("torch.")) name = name.substr(6);
  if (name == "float32" || name == "auto") return DType::float32;
  if (name == "bfloat16") return DType::bfloat16;
  if (name == "float16") return DType::float16;
  section.refuse(section.has("dtype") ? "dtype" : "torch_dtype",
                 fmt::format("is {}; float32, bfloat16 and float16 are supported", shown_name(name)));
}

void read_rope(const Section& section, ModelConfig& config) {
  constexpr double kMaxTheta = 1e15;
  config.rope_theta = section.real({"rope_theta"}, kDefaultRopeTheta, 1, kMaxTheta);
  // As in Hugging Face, the older key goes before the newer where both are there.
  const char* key = section.has("rope_scaling") ? "rope_scaling" : "rope_parameters";
  if (!section.has(key)) return;
  if (!section[key].is_object()) section.refuse(key, fmt::format("is {}; an object or null is allowed", shown(section[key])));
  for (const char* layer_type : {"full_attention", "sliding_attention"}) {
    if (section[key].contains(layer_type))
      section.refuse(key, "has a RoPE of its own for each layer type, which is not supported");
  }
  const Section rope(section[key], section.file(), std::string(key) + ".");
  config.rope_theta = rope.real({"rope_theta"}, config.rope_theta, 1, kMaxTheta);
  if (rope.has("partial_rotary_factor") && rope.real({"partial_rotary_factor"}, 1, 0, 1) != 1) {
    rope.refuse("partial_rotary_factor", fmt::format("is {}; only 1 is supported", shown(rope["partial_rotary_factor"])));
  }

  constexpr double kMaxFactor = 1e6;
  const std::string type = rope.text({"rope_type", "type"}, "default");
  if (type == "default") return;
  const auto needed = [&](const char* name, double low) {
    if (!rope.has(name)) rope.refuse(name, fmt::format("is missing; {} scaling needs it", type));
    return rope.real({name}, 0, low, kMaxFactor);
  };
  RopeScaling& scaling = config.rope_scaling;
  if (type == "linear") {
    scaling.kind = RopeScaling::Kind::linear;
    scaling.factor = needed("factor", 1);
  } else if (type == "llama3") {
    scaling.kind = RopeScaling::Kind::llama3;
    scaling.factor = needed("factor", 1);
    scaling.low_freq_factor = needed("low_freq_factor", 1e-6);
    scaling.high_freq_factor = needed("high_freq_factor", 1e-6);
    if (scaling.high_freq_factor <= scaling.low_freq_factor) {
      rope.refuse("high_freq_factor", fmt::format("is {}; it must be more than low_freq_factor, {}", scaling.high_freq_factor,
                                                  scaling.low_freq_factor));
    }
    const auto nested = rope.optional_whole({"original_max_position_embeddings"}, 1, kMaxPositions);
    const auto outer = section.optional_whole({"original_max_position_embeddings"}, 1, kMaxPositions);
    scaling.original_max_positions = outer ? *outer : nested.value_or(config.max_positions);
  } else {
    rope.refuse(rope.has("rope_type") ? "rope_type" : "type",
                fmt::format("is {}; default, linear and llama3 are supported", shown_name(type)));
  }
}

// Mistral: every layer has the window. Qwen: layer_types says which, else those from max_window_layers on, if use_sliding_window.
void read_windows(const Section& section, const Defaults& defaults, ModelConfig& config) {
  config.windows.assign(static_cast<std::size_t>(config.layers), 0);
  if (config.family == Family::gpt2 || config.family == Family::llama) return;

  constexpr const char* kKey = "sliding_window";
  std::int64_t window = section.optional_whole({kKey}, 1, kMaxPositions).value_or(0);
  if (window == 0 && !section.contains_null(kKey)) window = defaults.window;

  std::int64_t first_sliding = 0;
  if (config.family != Family::mistral && config.family != Family::mixtral) {
    if (!section.flag("use_sliding_window", false)) window = 0;
    first_sliding = section.whole({"max_window_layers"}, kDefaultMaxWindowLayers, 0, kMaxLayers);
  }
  for (std::int64_t layer = first_sliding; layer < config.layers; ++layer)
    config.windows[static_cast<std::size_t>(layer)] = window;

  if (!section.has("layer_types")) return;
  const Json& types = section["layer_types"];
  if (!types.is_array() || static_cast<std::int64_t>(types.size()) != config.layers) {
    section.refuse("layer_types", fmt::format("is {}; a list of {} names, one a layer, is allowed", shown(types), config.layers));
  }
  for (std::size_t layer = 0; layer < types.size(); ++layer) {
    const bool full = types[layer] == "full_attention";
    if (!full && types[layer] != "sliding_attention") {
      section.refuse("layer_types", fmt::format("has {} for layer {}; full_attention and sliding_attention are supported",
                                                shown(types[layer]), layer));
    }
    if (!full && window == 0) {
      section.refuse("layer_types", fmt::format("has sliding_attention for layer {}, but there is no sliding window", layer),
                     "Set sliding_window (and, for Qwen, use_sliding_window).");
    }
    const std::int64_t stated = full ? 0 : window;
    if (config.family == Family::mistral && stated != config.windows[layer]) {
      section.refuse("layer_types",
                     fmt::format("has full_attention for layer {}, but a Mistral model has its sliding_window {} in every layer",
                                 layer, window),
                     "Set sliding_window to null where no layer has one.");
    }
    config.windows[layer] = stated;
  }
}

void note_dropout(const Section& section, ModelConfig& config) {
  for (const char* key : {"resid_pdrop", "embd_pdrop", "attn_pdrop", "attention_dropout", "hidden_dropout"}) {
    const double probability = section.has(key) ? section.real({key}, 0, 0, 1) : 0;
    if (probability > 0)
      config.notes.push_back(
          fmt::format("{} is {} in the model's configuration; training is without dropout.", key, probability));
  }
}

void read_sizes(const Section& section, const Defaults& defaults, ModelConfig& config) {
  const bool gpt2 = config.family == Family::gpt2;
  // GPT-2 has its own words for the sizes, and Hugging Face takes the common ones for them too.
  config.hidden = gpt2 ? section.whole({"n_embd", "hidden_size"}, defaults.hidden, 1, kMaxHidden)
                       : section.whole({"hidden_size"}, defaults.hidden, 1, kMaxHidden);
  config.layers = gpt2 ? section.whole({"n_layer", "num_hidden_layers"}, defaults.layers, 1, kMaxLayers)
                       : section.whole({"num_hidden_layers"}, defaults.layers, 1, kMaxLayers);
  config.heads = gpt2 ? section.whole({"n_head", "num_attention_heads"}, defaults.heads, 1, kMaxHeads)
                      : section.whole({"num_attention_heads"}, defaults.heads, 1, kMaxHeads);
  config.max_positions = gpt2
                             ? section.whole({"n_positions", "max_position_embeddings"}, defaults.max_positions, 1, kMaxPositions)
                             : section.whole({"max_position_embeddings"}, defaults.max_positions, 1, kMaxPositions);
  config.vocab = section.whole({"vocab_size"}, defaults.vocab, 1, kMaxVocab);
  config.kv_heads = config.heads;
  if (gpt2) {
    config.mlp_width = section.optional_whole({"n_inner"}, 1, kMaxMlpWidth).value_or(4 * config.hidden);
  } else {
    const char* width = config.family == Family::qwen3_moe ? "moe_intermediate_size" : "intermediate_size";
    config.mlp_width = section.whole({width}, defaults.mlp_width, 1, kMaxMlpWidth);
    const auto stated = section.optional_whole({"num_key_value_heads"}, 1, kMaxHeads);
    if (stated) {
      config.kv_heads = *stated;
    } else if (defaults.kv_heads != 0 && !section.contains_null("num_key_value_heads")) {
      config.kv_heads = defaults.kv_heads;
    }
    config.head_dim = section.optional_whole({"head_dim"}, 1, kMaxHeadDim).value_or(defaults.head_dim);
  }
  const char* heads_key = gpt2 ? "n_head" : "num_attention_heads";
  if (config.head_dim == 0) {
    if (config.hidden % config.heads != 0) {
      section.refuse(heads_key, fmt::format("is {}; it must divide {}, {}, without rest", config.heads,
                                            gpt2 ? "n_embd" : "hidden_size", config.hidden));
    }
    config.head_dim = config.hidden / config.heads;
  }
  if (config.heads % config.kv_heads != 0) {
    section.refuse("num_key_value_heads",
                   fmt::format("is {}; it must divide num_attention_heads, {}, without rest", config.kv_heads, config.heads));
  }
  if (!gpt2 && config.head_dim % 2 != 0) {
    section.refuse("head_dim", fmt::format("is {}; rotary positions need an even number", config.head_dim));
  }
  if (config.heads * config.head_dim > kMaxAttentionWidth) {
    section.refuse(heads_key, fmt::format("is {}; times head_dim, {}, it may be at most {}", config.heads, config.head_dim,
                                          kMaxAttentionWidth));
  }
}

void read_experts(const Section& section, ModelConfig& config) {
  const bool mixtral = config.family == Family::mixtral;
  config.experts = section.whole({mixtral ? "num_local_experts" : "num_experts"}, mixtral ? 8 : 128, 1, kMaxExperts);
  config.experts_per_token = section.whole({"num_experts_per_tok"}, mixtral ? 2 : 8, 1, config.experts);
  if (config.experts * config.mlp_width > kMaxMlpWidth) {
    section.refuse(mixtral ? "num_local_experts" : "num_experts",
                   fmt::format("is {}; times the width of an expert, {}, it may be at most {}", config.experts, config.mlp_width,
                               kMaxMlpWidth));
  }
  if (section.has("decoder_sparse_step") && section.whole({"decoder_sparse_step"}, 1, 0, kMaxLayers) != 1) {
    section.refuse("decoder_sparse_step",
                   fmt::format("is {}; only 1 is supported: experts in every layer", shown(section["decoder_sparse_step"])));
  }
  if (section.has("mlp_only_layers") && !section["mlp_only_layers"].empty()) {
    section.refuse("mlp_only_layers", fmt::format("is {}; only an empty list is supported: experts in every layer",
                                                  shown(section["mlp_only_layers"])));
  }
}

void read_gpt2(const Section& section, ModelConfig& config) {
  config.norm_eps = section.real({"layer_norm_epsilon"}, kDefaults[0].norm_eps, 1e-30, 1);
  config.activation = read_activation(section, {"activation_function"}, kDefaults[0].activation);
  config.qkv_bias = config.attention_output_bias = config.mlp_bias = true;
  config.scale_attention = section.flag("scale_attn_weights", true);
  config.scale_by_inverse_layer = section.flag("scale_attn_by_inverse_layer_idx", false);
  if (section.flag("add_cross_attention", false))
    section.refuse("add_cross_attention", "is true; a decoder that attends to an encoder is not supported");
}

void read_llama_like(const Section& section, const Defaults& defaults, ModelConfig& config) {
  config.norm_eps = section.real({"rms_norm_eps"}, defaults.norm_eps, 1e-30, 1);
  config.activation = read_activation(section, {"hidden_act"}, defaults.activation);
  config.qk_norm = config.family == Family::qwen3 || config.family == Family::qwen3_moe;
  if (has_experts(config.family)) read_experts(section, config);
  switch (config.family) {
    case Family::llama:
      config.qkv_bias = config.attention_output_bias = section.flag("attention_bias", false);
      config.mlp_bias = section.flag("mlp_bias", false);
      break;
    case Family::qwen2:
      config.qkv_bias = true;
      break;
    case Family::qwen3:
    case Family::qwen3_moe:
      config.qkv_bias = config.attention_output_bias = section.flag("attention_bias", false);
      break;
    default:
      break;
  }
  read_rope(section, config);
}

}  // namespace

std::string_view name_of(Family family) { return row_of(family).model_type; }

double ModelConfig::attention_scale(std::int64_t layer) const {
  const double scale = scale_attention ? 1.0 / std::sqrt(static_cast<double>(head_dim)) : 1.0;
  return scale_by_inverse_layer ? scale / static_cast<double>(layer + 1) : scale;
}

namespace {

// With so many experts in a layer; 0: an MLP.
std::int64_t parameters_with(const ModelConfig& config, std::int64_t experts) {
  const std::int64_t hidden = config.hidden;
  const std::int64_t query = config.heads * config.head_dim;
  const std::int64_t key_value = 2 * config.kv_heads * config.head_dim;
  const bool gpt2 = config.family == Family::gpt2;
  const std::int64_t norm = gpt2 ? 2 * hidden : hidden;
  const std::int64_t matrices = gpt2 ? 2 : 3;  // up and down, or gate, up and down

  const std::int64_t attention = hidden * (query + key_value) + query * hidden + (config.qkv_bias ? query + key_value : 0) +
                                 (config.attention_output_bias ? hidden : 0) + (config.qk_norm ? 2 * config.head_dim : 0);
  const std::int64_t one =
      matrices * hidden * config.mlp_width + (config.mlp_bias ? (matrices - 1) * config.mlp_width + hidden : 0);
  const std::int64_t mlp = experts == 0 ? one : experts * one + config.experts * hidden;  // the router has a row for each
  const std::int64_t embeddings =
      config.vocab * hidden * (config.tied_embeddings ? 1 : 2) + (gpt2 ? config.max_positions * hidden : 0);
  return embeddings + config.layers * (attention + mlp + 2 * norm) + norm;
}

}  // namespace

std::int64_t parameter_count(const ModelConfig& config) { return parameters_with(config, config.experts); }
std::int64_t active_parameter_count(const ModelConfig& config) { return parameters_with(config, config.experts_per_token); }

ModelConfig parse_model_config(std::string_view json_text, const std::string& file) {
  const Json json = parse_strict_json(json_text, file, kMaxConfigKeys);
  if (!json.is_object()) throw InputError(fmt::format("{}: is {}; an object was expected", file, shown(json)));
  const Section section(json, file);

  ModelConfig config;
  config.family = read_family(section);
  const Defaults& defaults = kDefaults[static_cast<std::size_t>(config.family)];
  refuse_foreign(section, config.family);
  read_sizes(section, defaults, config);
  if (config.family == Family::gpt2) {
    read_gpt2(section, config);
  } else {
    read_llama_like(section, defaults, config);
  }
  read_windows(section, defaults, config);
  config.tied_embeddings = section.flag("tie_word_embeddings", defaults.tied);
  config.initializer_range = section.real({"initializer_range"}, 0.02, 0, 1);
  config.stored_dtype = read_dtype(section);
  note_dropout(section, config);
  config.json_text = std::string(json_text);

  const std::int64_t parameters = parameter_count(config);
  if (parameters > kMaxParameters) {
    throw InputError(fmt::format("{}: its sizes make {} parameters; at most {} are allowed", file, parameters, kMaxParameters));
  }
  return config;
}

ModelConfig read_model_config(const std::filesystem::path& file) {
  return parse_model_config(read_text_file(file, kMaxConfigBytes), file.string());
}

std::string config_json(const ModelConfig& config, DType stored) {
  SPILLWAY_CHECK(!config.json_text.empty(), "a configuration made by hand has no config.json to write");
  auto json = nlohmann::ordered_json::parse(config.json_text);
  const char* dtype_key = json.contains("torch_dtype") && !json.contains("dtype") ? "torch_dtype" : "dtype";
  json[dtype_key] = stored == DType::float32 ? "float32" : stored == DType::bfloat16 ? "bfloat16" : "float16";
  if (json.contains("torch_dtype") && json.contains("dtype")) json["torch_dtype"] = json["dtype"];
  const FamilyRow& row = row_of(config.family);
  json["model_type"] = row.model_type;
  json["architectures"] = {row.architecture};  // the bare model's weights are exported with their head
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace spillway
