// The attention half of a layer: norm, queries, keys and values by one product, head norms and rotary positions, causal
// attention, output product, residual. Not here: the attention kernel (attention_ops.h), the other kernels (ops.h).
//
// Legend: n rows of a micro-batch = B sequences x T tokens, H hidden, D head dimension, Hq / Hkv query / key-value heads.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/model_builder.h"
#include "models/norm_unit.h"
#include "models/rope_angles.h"

namespace spillway {

struct AttentionSpec {
  std::string name;                        // of the unit, "layer 3 attention"
  NormSpec norm;                           // over H
  std::vector<FileTensor> qkv_weights;     // queries, keys, values: together [(Hq+2Hkv)*D, H]
  std::vector<FileTensor> qkv_biases;      // together [(Hq+2Hkv)*D], or none
  std::optional<FileTensor> q_norm;        // [D], RMSNorm of each head; both or neither, and only with rotary positions
  std::optional<FileTensor> k_norm;        // [D]
  FileTensor output_weight;                // [H, Hq*D]
  std::optional<FileTensor> output_bias;   // [H]
  std::int64_t heads = 0;                  // Hq
  std::int64_t kv_heads = 0;               // Hkv
  std::int64_t head_dim = 0;               // D
  std::int64_t window = 0;                 // positions that a query sees, itself among them; 0: all before it
  float scale = 1;                         // on q.k
  std::shared_ptr<const RopeAngles> rope;  // null: no rotary positions
};

StreamValue add_attention(ModelBuilder& builder, StreamValue input, const std::string& output_name, const AttentionSpec& spec);

}  // namespace spillway
