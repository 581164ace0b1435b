// Reads the rotary positions of a config.json: theta, the scaling of any age's key, the part of a head that turns, and layers
// that do not turn. Not here: the angles that follow (rope_angles.h).
#pragma once

#include "models/config.h"
#include "models/config_section.h"

namespace spillway {

// Both want config.family and the sizes read. They throw InputError for a scaling that is unknown or lacks what it needs.
void read_rope(const ConfigSection& section, ModelConfig& config);
void read_unrotated_layers(const ConfigSection& section, ModelConfig& config);

}  // namespace spillway
