// Cosines and sines of the rotary positions, made once for a compiled model and shared by its attention units.
// Not here: the rotation itself (ops.h).
//
// Legend: T sequence length, D head dimension.
#pragma once

#include <memory>
#include <vector>

#include "models/config.h"
#include "models/ops.h"

namespace spillway {

// Frequencies [D/2] of the pairs of elements, after the scaling that the configuration asks for.
std::vector<float> rope_frequencies(const ModelConfig& config);

class RopeAngles {
 public:
  RopeAngles(const ModelConfig& config, std::int64_t sequence);
  ops::RopeTable table() const { return {cosine_.data(), sine_.data()}; }

 private:
  std::vector<float> cosine_, sine_;  // [T, D/2]
};

}  // namespace spillway
