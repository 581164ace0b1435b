// The attention half of a layer, in this order: norm, in most families; queries, keys and values by one product; head norms and
// rotary positions; causal attention, with sinks where there are some; output product; in some families a norm of its result;
// residual.
// Not here: what the kernels are (kernels.h).
//
// Legend: n rows of a micro-batch = B sequences x T tokens, H hidden, D head dimension, Hq / Hkv query / key-value heads.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "models/model_builder.h"
#include "models/norm_unit.h"
#include "models/rope_angles.h"

namespace spillway {

struct AttentionSpec {
  std::string name;                       // name of the unit, "layer 3 attention"
  std::optional<NormSpec> norm;           // over H, on the input
  std::optional<NormSpec> post_norm;      // over H, on the output product's result
  std::vector<FileTensor> qkv_weights;    // queries, keys, values: together [(Hq+2Hkv)*D, H]
  std::vector<FileTensor> qkv_biases;     // together [(Hq+2Hkv)*D], or none
  std::optional<FileTensor> q_norm;       // [D], RMSNorm of each head; both or neither, and only with rotary positions
  std::optional<FileTensor> k_norm;       // [D]
  bool norms_all_heads = false;           // these two are of all heads of a row together: [Hq*D] and [Hkv*D]
  float head_norm_epsilon = 0;            // of these two
  float head_norm_offset = 0;             // added to their stored weights
  std::optional<FileTensor> sinks;        // [Hq], one score a head that has no value
  FileTensor output_weight;               // [H, Hq*D]
  std::optional<FileTensor> output_bias;  // [H]
  std::int64_t heads = 0;                 // Hq
  std::int64_t kv_heads = 0;              // Hkv
  std::int64_t head_dim = 0;              // D
  std::int64_t window = 0;                // positions that a query sees, itself included; 0: all up to itself
  float scale = 1;                        // factor on q.k
  float softcap = 0;                      // cap of the scores; 0: none
  float residual_factor = 1;              // on what is added to the residual stream; other than 1 only without a bias and a norm
  std::optional<RopeTables> rope;         // rotary positions
};

StreamValue add_attention(ModelBuilder& builder, StreamValue input, const std::string& output_name, const AttentionSpec& spec);

}  // namespace spillway
