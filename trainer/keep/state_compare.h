// Compares an executor's state with a file of state, bit for bit.
// Not here: losses and norms (trainer/run/verify.h), writing the file (state_io.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "memory/plan/plan.h"
#include "offload/executor.h"

namespace spillway {

struct StateDifference {
  std::string array;              // "weight of model.layers.0.mlp.up_proj.weight"
  std::vector<std::int64_t> at;   // index in the model file's tensor; empty for padding
  std::uint32_t first_bits = 0;   // in the file
  std::uint32_t second_bits = 0;  // in the executor
};

// The first element that differs, in the order of blocks and arrays, including padding. The file is save_state's, for the same
// model and state form; the executor must be idle, with no update waiting.
std::optional<StateDifference> first_difference(Executor& executor, const Plan& plan, const UnitGraph& graph,
                                                const std::string& file);

// The tensor of a block's element and the index in it: "model.layers.0.mlp.up_proj.weight"; an empty name for padding.
struct ElementName {
  std::string tensor;
  std::vector<std::int64_t> at;
};
ElementName name_of_element(const ParameterBlock& block, std::int64_t element);

}  // namespace spillway
