// The MLP half of a layer: norm, in most families; up (and gate), activation, down; in some families a norm of the result;
// residual. A large MLP is cut in tiles of columns of the inner width, one unit each; their partial sums are added in fp32, first
// to last in the forward and last to first in the backward.
// Not here: how many columns a tile has (Cuts), what the kernels are (kernels.h).
//
// Legend: n rows of a micro-batch, H hidden, I inner width (or a tile's part of it), U = 2I with a gate, else I.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "models/activation.h"
#include "models/model_builder.h"
#include "models/norm_unit.h"

namespace spillway {

struct MlpSpec {
  std::string name;                     // name of the unit, "layer 3 mlp"
  std::optional<NormSpec> norm;         // over H, on the input
  std::optional<NormSpec> post_norm;    // over H, on the down product's result
  std::vector<FileTensor> up_weights;   // [I,H] each: gate and up, or up alone; or one of [2I,H] that has both
  std::vector<FileTensor> up_biases;    // one for each weight, or none
  FileTensor down_weight;               // [H,I]
  std::optional<FileTensor> down_bias;  // [H]
  Activation activation = Activation::silu;
  float residual_factor = 1;  // on what is added to the residual stream; other than 1 only without a bias and a norm
  std::int64_t inner() const { return down_weight.columns; }                // I
  bool is_fused() const { return up_weights.front().rows == 2 * inner(); }  // gate and up are one tensor
  bool is_gated() const { return up_weights.size() == 2 || is_fused(); }
};

// Elements of the matrices of one MLP. The MLP's cut follows from them.
std::int64_t mlp_matrix_elements(const ModelConfig& config);

StreamValue add_mlp(ModelBuilder& builder, StreamValue input, const std::string& output_name, const MlpSpec& spec);

}  // namespace spillway
