// The attention half of a layer: norm, queries, keys and values by one product, head norms and rotary positions, causal
// attention, output product, a norm of that in some families, residual. Not here: what the kernels are (kernels.h).
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
  std::string name;                       // of the unit, "layer 3 attention"
  NormSpec norm;                          // over H
  std::optional<NormSpec> post_norm;      // over H, of what the output product gives
  std::vector<FileTensor> qkv_weights;    // queries, keys, values: together [(Hq+2Hkv)*D, H]
  std::vector<FileTensor> qkv_biases;     // together [(Hq+2Hkv)*D], or none
  std::optional<FileTensor> q_norm;       // [D], RMSNorm of each head; both or neither, and only with rotary positions
  std::optional<FileTensor> k_norm;       // [D]
  float head_norm_offset = 0;             // that these two are stored without
  FileTensor output_weight;               // [H, Hq*D]
  std::optional<FileTensor> output_bias;  // [H]
  std::int64_t heads = 0;                 // Hq
  std::int64_t kv_heads = 0;              // Hkv
  std::int64_t head_dim = 0;              // D
  std::int64_t window = 0;                // positions that a query sees, itself among them; 0: all before it
  float scale = 1;                        // on q.k
  float softcap = 0;                      // of the scores; 0: none
  std::optional<RopeTables> rope;         // rotary positions
};

StreamValue add_attention(ModelBuilder& builder, StreamValue input, const std::string& output_name, const AttentionSpec& spec);

}  // namespace spillway
