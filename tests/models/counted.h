// Counts the parameters of a configuration's model, by its units.
#pragma once

#include "models/build.h"

namespace spillway {

inline UnitGraph planned_graph(const ModelConfig& config) { return build_model(config, {.sequence = 1}).graph; }
inline std::int64_t parameter_count(const ModelConfig& config) { return planned_graph(config).parameters; }
inline std::int64_t active_parameter_count(const ModelConfig& config) { return planned_graph(config).active_parameters; }

}  // namespace spillway
