// Every family but GPT-2 (Llama, Mistral, Qwen2, Qwen3, Gemma 2 and 3, and with experts Mixtral and Qwen3-MoE): RMSNorm, rotary
// positions, gated MLP. They differ by their configuration alone. Not here: the blocks (attention.h, mlp.h, experts.h,
// embedding.h, head.h).
#pragma once

#include "models/model_builder.h"

namespace spillway {

void add_llama_units(ModelBuilder& builder, const ModelConfig& config, HeadMode head);

}  // namespace spillway
