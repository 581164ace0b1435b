#include "trainer/options/adapter_config.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "files/json_place.h"
#include "files/json_text.h"
#include "files/posix_file.h"
#include "files/strict_json.h"
#include "memory/base/error.h"
#include "memory/base/types.h"

namespace spillway {
namespace {

using nlohmann::json;

constexpr std::string_view kWhatRuns =
    "This version runs LoRA on linear layers of a causal language model, with one rank and one alpha.";
constexpr double kMostDropout = 0.999;  // at 1 an adapter would learn nothing
constexpr std::string_view kAllLinear = "all-linear";

// Keys that change nothing of what an adapter computes once it is there, whatever they say; or that are read by name.
constexpr std::array<std::string_view, 19> kKnown = {"peft_type",
                                                     "task_type",
                                                     "r",
                                                     "lora_alpha",
                                                     "use_rslora",
                                                     "lora_dropout",
                                                     "target_modules",
                                                     "auto_mapping",
                                                     "inference_mode",
                                                     "peft_version",
                                                     "revision",
                                                     "base_model_name_or_path",
                                                     "fan_in_fan_out",
                                                     "megatron_core",
                                                     "runtime_config",
                                                     "qalora_group_size",
                                                     "init_lora_weights",
                                                     "eva_config",
                                                     "bias"};

bool is_off(const json& value) {
  return value.is_null() || value == false || ((value.is_object() || value.is_array() || value.is_string()) && value.empty()) ||
         value == "none";
}

void refuse_other_kinds(const JsonPlace& place) {
  if (const JsonPlace type = place.at("peft_type"); type.text() != "LORA")
    type.refuse(fmt::format("is {}, allowed in this version: LORA", type.text()));
  if (const JsonPlace task = place.at("task_type"); task.is_set() && task.text() != "CAUSAL_LM")
    task.refuse(fmt::format("is {}, allowed in this version: CAUSAL_LM", task.text()));
  if (const JsonPlace bias = place.at("bias"); bias.is_set() && bias.text() != "none")
    bias.refuse(fmt::format("is {}, allowed in this version: none", bias.text()));
  // Some ways to begin take a part out of the base model's weights.
  if (const JsonPlace begins = place.at("init_lora_weights"); begins.is_set() && begins.json().is_string()) {
    constexpr std::array<std::string_view, 3> harmless = {"gaussian", "eva", "orthogonal"};
    if (std::ranges::find(harmless, begins.text()) == harmless.end())
      begins.refuse(fmt::format("is {}, allowed in this version: true, false, gaussian, eva, orthogonal", begins.text()));
  }
  for (const std::string& key : place.keys()) {
    if (std::ranges::find(kKnown, key) != kKnown.end() || is_off(place.at(key).json())) continue;
    place.at(key).refuse(fmt::format("is {}, allowed in this version: none", plain_text(place.at(key).json())));
  }
}

void read_targets(const JsonPlace& place, AdapterConfig& config) {
  if (place.json().is_string()) {
    if (place.text() != kAllLinear) config.pattern = place.text();
    return;
  }
  for (std::size_t i = 0; i < place.size(); ++i) config.targets.push_back(place.at(i).text());
  if (config.targets.empty()) place.refuse("is empty: it names no layer");
}

}  // namespace

AdapterConfig read_adapter_config(const std::filesystem::path& file) {
  const json parsed = parse_strict_json(read_text_file(file, kMiB), file.string());
  const JsonPlace place(parsed, file.string(), kWhatRuns);
  if (!place.has("peft_type")) place.at("peft_type").refuse("is missing: this is no adapter's configuration");
  refuse_other_kinds(place);
  AdapterConfig config;
  config.rank = place.at("r").integer(1, kMostRank);
  config.alpha = place.at("lora_alpha").number(0, 1e9);
  config.rank_stabilized = place.at("use_rslora").boolean_or(false);
  if (const JsonPlace dropout = place.at("lora_dropout"); dropout.is_set()) config.dropout = dropout.number(0, kMostDropout);
  read_targets(place.at("target_modules"), config);
  if (const JsonPlace base = place.at("base_model_name_or_path"); base.is_set()) config.base = base.text();
  return config;
}

std::string adapter_config_json(const AdapterConfig& config) {
  nlohmann::ordered_json object;
  object["base_model_name_or_path"] = config.base.empty() ? json() : json(config.base);
  object["bias"] = "none";
  object["fan_in_fan_out"] = false;
  object["inference_mode"] = true;
  object["init_lora_weights"] = true;
  object["lora_alpha"] = config.alpha;
  object["lora_dropout"] = config.dropout;
  object["modules_to_save"] = nullptr;
  object["peft_type"] = "LORA";
  object["r"] = config.rank;
  object["target_modules"] = config.targets.empty() ? json(kAllLinear) : json(config.targets);
  object["task_type"] = "CAUSAL_LM";
  object["use_dora"] = false;
  object["use_rslora"] = config.rank_stabilized;
  return json_text(object);
}

AdapterSpec spec_of(const AdapterConfig& config) {
  const auto rank = static_cast<double>(config.rank);
  const double scale = config.alpha / (config.rank_stabilized ? std::sqrt(rank) : rank);
  return {.rank = config.rank,
          .scale = static_cast<float>(scale),
          .dropout = static_cast<float>(config.dropout),
          .targets = config.targets};
}

}  // namespace spillway
