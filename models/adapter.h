// Low-rank adapters (LoRA) on the linear layers of a frozen model: y += scale (x A^T) B^T beside y = x W^T, with A [r,in] and
// B [out,r]. Says which layers have one, and what its tensors are called, by the rules and in the names of PEFT.
// Not here: their kernels (adapted_linear.h), files (trainer/options/adapter_config.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace spillway {

struct UnitGraph;

struct AdapterSpec {
  std::int64_t rank = 0;  // r
  float scale = 1;
  float dropout = 0;  // of what A reads, in training
  // Names of layers ("model.layers.0.self_attn.q_proj"), or their last parts ("q_proj", "self_attn.q_proj"); empty: all linear
  // layers but the head.
  std::vector<std::string> targets;
  bool operator==(const AdapterSpec&) const = default;
};

// The layer that has this weight: "model.layers.0.self_attn.q_proj" of "model.layers.0.self_attn.q_proj.weight".
std::string_view layer_of_weight(std::string_view tensor);
bool adapts(const AdapterSpec& spec, std::string_view layer);

enum class Factor : std::uint8_t { a, b };
// "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"
std::string adapter_tensor(std::string_view layer, Factor factor);
struct AdapterTensor {
  std::string_view layer;
  Factor factor = Factor::a;
};
// The reverse; nothing for other names.
std::optional<AdapterTensor> adapter_tensor_in(std::string_view name);

// The layers of a graph that have an adapter, in the order of the model.
std::vector<std::string> adapted_layers(const UnitGraph& graph);

}  // namespace spillway
