#include "models/config_rope.h"

#include <fmt/core.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "files/strict_json.h"

namespace spillway {
namespace {

constexpr double kMaxTheta = 1e15, kMaxFactor = 1e6;
constexpr std::int64_t kMaxPositions = std::int64_t{1} << 31, kMaxLayers = 10'000;
constexpr const char* kOriginal = "original_max_position_embeddings";

// One rotation: `rope` is a part of `section`, which may have some of its keys.
class RopeReader {
 public:
  RopeReader(const ConfigSection& section, const ConfigSection& rope, const ModelConfig& config)
      : section_(section), rope_(rope), config_(config) {}

  void read(Rope& read) {
    read.theta = rope_.real({"rope_theta"}, read.theta, 1, kMaxTheta);
    read_part(read);
    read_query_beta(read);
    type_ = rope_.text({"rope_type", "type", NullIs::absent}, "default");
    // The first Phi-3 named its scaling so.
    if (config_.family->defaults.original_positions > 0 && (type_ == "su" || type_ == "yarn")) type_ = "longrope";
    if (type_ == "default") return;
    if (type_ == "linear") {
      read.scaling.kind = RopeScaling::Kind::linear;
      read.scaling.factor = needed("factor", 1);
    } else if (type_ == "llama3") {
      read_llama3(read.scaling);
    } else if (type_ == "yarn") {
      read_yarn(read);
    } else if (type_ == "longrope") {
      read_longrope(read);
    } else {
      rope_.refuse(rope_.has("rope_type") ? "rope_type" : "type",
                   fmt::format("is {}; default, linear, llama3, yarn and longrope are supported", shown_name(type_)));
    }
  }

 private:
  double needed(const char* name, double low) const {
    if (!rope_.has(name)) rope_.refuse(name, fmt::format("is missing; {} scaling needs it", type_));
    return rope_.real({name}, 0, low, kMaxFactor);
  }
  std::int64_t original_positions() const {
    const std::int64_t usual = config_.family->defaults.original_positions;
    const auto outer = section_.optional_whole({kOriginal}, 1, kMaxPositions);
    if (outer || usual > 0) return outer.value_or(usual);
    return rope_.optional_whole({kOriginal}, 1, kMaxPositions).value_or(config_.max_positions);
  }

  void read_part(Rope& read) const {
    constexpr const char* kKey = "partial_rotary_factor";
    const ConfigSection& place = rope_.has(kKey) ? rope_ : section_;
    const double part = place.has(kKey) ? place.real({kKey}, 1, 0, 1) : config_.family->defaults.rotary_part;
    if (part == 1) return;
    if (!config_.family->turns_in_part) place.refuse(kKey, fmt::format("is {}; only 1 is supported", shown(place[kKey].json())));
    read.rotated = static_cast<std::int64_t>(part * static_cast<double>(config_.head_dim));
    if (read.rotated < 2 || read.rotated % 2 != 0) {
      place.refuse(kKey,
                   fmt::format("is {}; of a head's {} elements an even number of 2 or more must turn", part, config_.head_dim));
    }
  }

  void read_query_beta(Rope& read) const {
    constexpr const char* kKey = "llama_4_scaling_beta";
    if (!rope_.has(kKey)) return;
    read.query_beta = rope_.real({kKey}, 0, 0, kMaxFactor);
    if (!config_.family->scaled_queries && read.query_beta > 0)
      rope_.refuse(kKey,
                   fmt::format("is {}; a {} model does not scale its queries", read.query_beta, config_.family->model_type));
    read.scaling.original_max_positions = original_positions();
  }

  void read_llama3(RopeScaling& scaling) const {
    scaling.kind = RopeScaling::Kind::llama3;
    scaling.factor = needed("factor", 1);
    scaling.low_freq_factor = needed("low_freq_factor", 1e-6);
    scaling.high_freq_factor = needed("high_freq_factor", 1e-6);
    if (scaling.high_freq_factor <= scaling.low_freq_factor) {
      rope_.refuse("high_freq_factor", fmt::format("is {}; it must be more than low_freq_factor, {}", scaling.high_freq_factor,
                                                   scaling.low_freq_factor));
    }
    scaling.original_max_positions = original_positions();
  }

  // A null or a 0 is as no value, as in Hugging Face.
  double optional(const char* name, double fallback) const {
    const double value = rope_.has(name) ? rope_.real({name}, 0, 0, kMaxFactor) : 0;
    return value > 0 ? value : fallback;
  }

  void read_yarn(Rope& read) const {
    if (!(read.theta > 1)) rope_.refuse("rope_theta", "is 1; yarn scaling needs more");
    RopeScaling& scaling = read.scaling;
    scaling.kind = RopeScaling::Kind::yarn;
    scaling.factor = needed("factor", 1);
    scaling.original_max_positions = original_positions();
    scaling.beta_fast = optional("beta_fast", 32);
    scaling.beta_slow = optional("beta_slow", 1);
    scaling.truncate = rope_.flag({.name = "truncate", .null = NullIs::absent}, true);
    const auto grown = [&](double scale) { return 0.1 * scale * std::log(scaling.factor) + 1; };
    const double all = optional("mscale_all_dim", 0), own = optional("mscale", 0);
    const double usual = all > 0 && own > 0 ? grown(own) / grown(all) : grown(1);
    scaling.attention_factor = rope_.has("attention_factor") ? needed("attention_factor", 1e-6) : usual;
  }

  std::vector<double> factors(const char* name, std::int64_t count) const {
    if (!rope_.has(name)) rope_.refuse(name, "is missing; longrope scaling needs it");
    const JsonPlace list = rope_[name];
    if (static_cast<std::int64_t>(list.size()) != count)
      list.refuse(fmt::format("has {} numbers; {} are allowed, one for each pair that turns", list.size(), count));
    std::vector<double> numbers;
    for (std::size_t i = 0; i < list.size(); ++i) numbers.push_back(list.at(i).number(1e-6, kMaxFactor));
    return numbers;
  }

  void read_longrope(Rope& read) const {
    RopeScaling& scaling = read.scaling;
    scaling.kind = RopeScaling::Kind::longrope;
    const std::int64_t pairs = (read.rotated > 0 ? read.rotated : config_.head_dim) / 2;
    scaling.short_factors = factors("short_factor", pairs);
    scaling.long_factors = factors("long_factor", pairs);
    scaling.original_max_positions = original_positions();
    if (scaling.original_max_positions < 2)
      (rope_.has(kOriginal) ? rope_ : section_).refuse(kOriginal, "is 1; longrope scaling needs 2 or more");
    const double original = static_cast<double>(scaling.original_max_positions);
    const double factor = optional("factor", static_cast<double>(config_.max_positions) / original);
    const double usual = factor > 1 ? std::sqrt(1 + std::log(factor) / std::log(original)) : 1;
    scaling.attention_factor = rope_.has("attention_factor") ? needed("attention_factor", 1e-6) : usual;
  }

  const ConfigSection &section_, &rope_;
  const ModelConfig& config_;
  std::string type_;
};

}  // namespace

void read_rope(const ConfigSection& section, ModelConfig& config) {
  const FamilyRow& family = *config.family;
  config.rope.theta = section.real({"rope_theta"}, family.defaults.rope_theta, 1, kMaxTheta);
  if (family.keys.window_rope_theta.name != nullptr)
    config.window_rope = Rope{section.real(family.keys.window_rope_theta, family.defaults.window_rope_theta, 1, kMaxTheta), {}};
  // As in Hugging Face, the older key comes before the newer where both are there.
  constexpr const char* kNewer = "rope_parameters";
  const char* key = section.has("rope_scaling") ? "rope_scaling" : kNewer;
  if (!section.has(key)) {
    if (family.states_rope) section.refuse(kNewer, fmt::format("is missing; {} needs it", family.model_type));
    // The section's own keys alone.
    static const nlohmann::json nothing = nlohmann::json::object();
    return RopeReader(section, ConfigSection(JsonPlace(nothing, "")), config).read(config.rope);
  }
  const ConfigSection all(section[key]);
  constexpr const char *kFull = "full_attention", *kSliding = "sliding_attention";
  if (!all.has(kFull) && !all.has(kSliding)) {
    // Hugging Face then ignores the newer key, but takes the older one for layers without a window.
    if (config.window_rope && key == kNewer && !section[key].json().empty()) {
      section.refuse(key, fmt::format("has one RoPE; a {} model has one for each layer type: {} and {}", bare_name(family), kFull,
                                      kSliding));
    }
    return RopeReader(section, all, config).read(config.rope);
  }
  if (!config.window_rope)
    section.refuse(key, fmt::format("has a RoPE for each layer type; a {} model has one for all layers", bare_name(family)));
  if (all.has(kFull)) RopeReader(section, ConfigSection(all[kFull]), config).read(config.rope);
  if (all.has(kSliding)) RopeReader(section, ConfigSection(all[kSliding]), config).read(*config.window_rope);
}

void read_unrotated_layers(const ConfigSection& section, ModelConfig& config) {
  const std::int64_t every = config.family->defaults.unrotated_every;
  if (every == 0) return;
  config.unrotated.assign(static_cast<std::size_t>(config.layers), false);
  const std::int64_t nth = section.whole({"no_rope_layer_interval"}, every, 1, kMaxLayers);
  constexpr const char* kKey = "no_rope_layers";
  if (!section.has(kKey)) {
    for (std::int64_t layer = 0; layer < config.layers; ++layer)
      config.unrotated[static_cast<std::size_t>(layer)] = (layer + 1) % nth == 0;
    return;
  }
  // The list says 1 for layers that turn.
  const JsonPlace list = section[kKey];
  if (static_cast<std::int64_t>(list.size()) != config.layers)
    list.refuse(fmt::format("is {}; a list of {} numbers, one a layer, is allowed", shown(list.json()), config.layers));
  for (std::size_t layer = 0; layer < list.size(); ++layer) config.unrotated[layer] = list.at(layer).integer(0, 1) == 0;
}

}  // namespace spillway
