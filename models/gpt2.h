// GPT-2: learned positions, LayerNorm with bias, one matrix for queries, keys and values, an MLP without a gate.
// Its file has linear weights as [in, out]; here they are [out, in] as everywhere.
// Not here: the blocks (attention.h, mlp.h, embedding.h, head.h).
#pragma once

#include "models/model_builder.h"

namespace spillway {

void add_gpt2_units(ModelBuilder& builder, const ModelConfig& config, HeadMode head);

}  // namespace spillway
