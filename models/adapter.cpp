#include "models/adapter.h"

#include <fmt/core.h>

#include <algorithm>

#include "memory/plan/unit.h"
#include "models/wrapper.h"

namespace spillway {
namespace {

constexpr std::string_view kPrefix = "base_model.model.", kWeight = ".weight", kA = ".lora_A.weight", kB = ".lora_B.weight";

}  // namespace

std::string_view layer_of_weight(std::string_view tensor) {
  if (tensor.ends_with(kWeight)) tensor.remove_suffix(kWeight.size());
  return tensor;
}

bool adapts(const AdapterSpec& spec, std::string_view layer) {
  if (spec.targets.empty()) return true;
  return std::ranges::any_of(spec.targets, [&](const std::string& target) {
    return layer == target || without_text_prefix(layer) == without_text_prefix(target) ||
           (layer.size() > target.size() && layer.ends_with(target) && layer[layer.size() - target.size() - 1] == '.');
  });
}

std::string adapter_tensor(std::string_view layer, Factor factor) {
  return fmt::format("{}{}{}", kPrefix, layer, factor == Factor::a ? kA : kB);
}

std::optional<AdapterTensor> adapter_tensor_in(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  for (const Factor factor : {Factor::a, Factor::b}) {
    const std::string_view ending = factor == Factor::a ? kA : kB;
    if (name.size() > ending.size() && name.ends_with(ending))
      return AdapterTensor{name.substr(0, name.size() - ending.size()), factor};
  }
  return std::nullopt;
}

std::vector<std::string> adapted_layers(const UnitGraph& graph) {
  std::vector<std::string> layers;
  for (const ParameterBlock& block : graph.blocks) {
    if (!block.of_adapter) continue;
    for (const TensorPiece& piece : block.pieces) {
      const std::string layer(adapter_tensor_in(piece.tensor).value().layer);
      if (std::ranges::find(layers, layer) == layers.end()) layers.push_back(layer);
    }
  }
  return layers;
}

}  // namespace spillway
