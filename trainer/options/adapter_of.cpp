#include "trainer/options/adapter_of.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "files/safetensors.h"
#include "memory/base/error.h"

namespace spillway {
namespace {

constexpr std::string_view kAllLinear = "all-linear";

std::vector<std::string> targets_of(const AdapterOptions& options) {
  if (options.targets == std::vector<std::string>{std::string(kAllLinear)}) return {};
  return options.targets;
}

AdapterConfig new_adapter(const AdapterOptions& options) {
  return {.rank = options.rank,
          .alpha = options.alpha.value_or(static_cast<double>(options.rank)),
          .dropout = options.dropout.value_or(0),
          .targets = targets_of(options),
          .pattern = {},
          .base = {}};
}

// The layers that have tensors in an adapter's file, for a configuration that only says them by a pattern.
std::vector<std::string> layers_in(const std::string& file) {
  std::vector<std::string> layers;
  const SafetensorsReader reader(file);
  for (const StoredTensor& tensor : reader.tensors()) {
    const std::optional<AdapterTensor> of = adapter_tensor_in(tensor.name);
    if (of && of->factor == Factor::a) layers.emplace_back(of->layer);
  }
  if (layers.empty()) throw InputError(fmt::format("{}: has no tensor of an adapter", file));
  return layers;
}

AdapterConfig stored_adapter(const std::string& directory) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(directory + std::string(kAdapterConfig), ignored)) {
    throw InputError(
        fmt::format("--adapter: found {}, which has no adapter_config.json, allowed: a directory that PEFT or "
                    "`spillway export` wrote",
                    directory));
  }
  AdapterConfig config = read_adapter_config(directory + std::string(kAdapterConfig));
  const std::string weights = directory + std::string(kAdapterWeights);
  if (!std::filesystem::is_regular_file(weights, ignored)) {
    throw InputError(fmt::format("--adapter: {} has no adapter_model.safetensors", directory),
                     "Save it by PEFT's save_pretrained with safetensors, which is its default.");
  }
  if (!config.pattern.empty()) config.targets = layers_in(weights), config.pattern.clear();
  return config;
}

// What flags say must be what the adapter says that is already there.
void refuse_differences(const AdapterOptions& asked, const AdapterConfig& config, const std::string& whose) {
  const auto refuse = [&](std::string_view flag, const auto& found, const auto& is) {
    throw InputError(fmt::format("{}: found {}, but {} has {}", flag, found, whose, is),
                     "Leave the flag out: an adapter goes on as it is.");
  };
  if (asked.rank > 0 && asked.rank != config.rank) refuse("--lora-rank", asked.rank, config.rank);
  if (asked.alpha && *asked.alpha != config.alpha) refuse("--lora-alpha", *asked.alpha, config.alpha);
  if (asked.targets.empty()) return;
  std::vector<std::string> wanted = targets_of(asked), is = config.targets;
  std::ranges::sort(wanted), std::ranges::sort(is);
  const auto words = [](const std::vector<std::string>& names) {
    return names.empty() ? std::string(kAllLinear) : fmt::format("{}", fmt::join(names, " "));
  };
  if (wanted != is) refuse("--lora-targets", words(wanted), words(is));
}

}  // namespace

std::optional<AdapterConfig> adapter_of(const RunOptions& options) {
  const AdapterOptions& asked = options.adapter;
  if (!asked.kept_config.empty()) {
    AdapterConfig config = read_adapter_config(asked.kept_config);
    refuse_differences(asked, config, fmt::format("the run in {}", options.checkpoint.load));
    config.dropout = asked.dropout.value_or(config.dropout);
    return config;
  }
  if (!options.checkpoint.load.empty()) {
    if (asked.rank == 0 && asked.directory.empty()) return std::nullopt;
    throw InputError(fmt::format("{}: the run in {} trains all weights", asked.rank > 0 ? "--lora-rank" : "--adapter",
                                 options.checkpoint.load),
                     "Export it, and train adapters on the result: --model DIR --lora-rank N.");
  }
  if (!asked.directory.empty()) {
    AdapterConfig config = stored_adapter(asked.directory);
    refuse_differences(asked, config, asked.directory);
    config.dropout = asked.dropout.value_or(config.dropout);
    return config;
  }
  if (asked.rank > 0) return new_adapter(asked);
  if (asked.alpha || asked.dropout || !asked.targets.empty()) {
    throw InputError(fmt::format("{}: found without --lora-rank, allowed: together with --lora-rank N or --adapter DIR",
                                 asked.alpha     ? "--lora-alpha"
                                 : asked.dropout ? "--lora-dropout"
                                                 : "--lora-targets"));
  }
  return std::nullopt;
}

std::optional<AdapterSpec> adapter_spec_of(const RunOptions& options) {
  const std::optional<AdapterConfig> config = adapter_of(options);
  return config ? std::optional(spec_of(*config)) : std::nullopt;
}

std::string note_of_other_base(const RunOptions& options) {
  if (options.adapter.directory.empty() || !options.checkpoint.load.empty()) return {};
  const std::string base = adapter_of(options)->base;
  const auto name_in = [](const std::string& path) {
    const std::filesystem::path whole = std::filesystem::path(path).lexically_normal();
    return whole.has_filename() ? whole.filename() : whole.parent_path().filename();
  };
  if (base.empty() || name_in(base) == name_in(options.model.model)) return {};
  return fmt::format("--adapter: {} says that it is of {}, and --model is {}", options.adapter.directory, base,
                     options.model.model);
}

void refuse_other_targets(const RunOptions& options, const UnitGraph& graph) {
  if (options.adapter.rank == 0 || !options.adapter.directory.empty()) return;
  const std::vector<std::string> adapted = adapted_layers(graph);
  for (const std::string& target : targets_of(options.adapter)) {
    const AdapterSpec alone{.rank = 1, .targets = {target}};
    if (std::ranges::any_of(adapted, [&](const std::string& layer) { return adapts(alone, layer); })) continue;
    std::vector<std::string> names;  // the last parts of all linear layers' names
    for (const ParameterBlock& block : graph.blocks) {
      for (const TensorPiece& piece : block.pieces) {
        if (block.of_adapter || piece.decay == Decay::none || block.looked_up || piece.tensor == "lm_head.weight") continue;
        std::string_view name = layer_of_weight(piece.tensor);
        name.remove_prefix(name.rfind('.') + 1);
        if (name != "wpe" && std::ranges::find(names, name) == names.end()) names.emplace_back(name);
      }
    }
    throw InputError(fmt::format("--lora-targets: found {}, which is no linear layer of the model, allowed: all-linear, {}",
                                 target, fmt::join(names, ", ")),
                     "This version has adapters on linear layers, not on the embedding and the head.");
  }
}

}  // namespace spillway
