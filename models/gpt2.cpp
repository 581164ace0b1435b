#include "models/gpt2.h"

#include <fmt/core.h>

#include <cmath>

#include "memory/base/error.h"
#include "models/attention.h"
#include "models/embedding.h"
#include "models/head.h"
#include "models/mlp.h"

namespace spillway {
namespace {

NormSpec layer_norm(const ModelConfig& config, const std::string& name) {
  return {file_vector(name + ".weight", config.hidden, Initial::ones), file_vector(name + ".bias", config.hidden),
          static_cast<float>(config.norm_eps)};
}

FileTensor conv1d(std::string name, std::int64_t out, std::int64_t in, double deviation_divisor = 1) {
  return file_matrix(std::move(name), out, in, FileLayout::transposed, deviation_divisor);
}

// Projections that add to the residual stream begin smaller: by 1 / sqrt(number of them).
double residual_divisor(const ModelConfig& config) { return std::sqrt(2.0 * static_cast<double>(config.layers)); }

AttentionSpec attention_spec(const ModelConfig& config, std::int64_t layer) {
  const std::string prefix = fmt::format("transformer.h.{}.", layer);
  const std::int64_t H = config.hidden;
  AttentionSpec spec;
  spec.name = fmt::format("layer {} attention", layer);
  spec.norm = layer_norm(config, prefix + "ln_1");
  spec.qkv_weights = {conv1d(prefix + "attn.c_attn.weight", 3 * H, H)};
  spec.qkv_biases = {file_vector(prefix + "attn.c_attn.bias", 3 * H)};
  spec.output_weight = conv1d(prefix + "attn.c_proj.weight", H, H, residual_divisor(config));
  spec.output_bias = file_vector(prefix + "attn.c_proj.bias", H);
  spec.heads = spec.kv_heads = config.heads;
  spec.head_dim = config.head_dim;
  spec.window = config.windows[static_cast<std::size_t>(layer)];
  spec.scale = static_cast<float>(config.attention_scale(layer));
  return spec;
}

MlpSpec mlp_spec(const ModelConfig& config, std::int64_t layer) {
  const std::string prefix = fmt::format("transformer.h.{}.", layer);
  MlpSpec spec;
  spec.name = fmt::format("layer {} mlp", layer);
  spec.norm = layer_norm(config, prefix + "ln_2");
  spec.up_weights = {conv1d(prefix + "mlp.c_fc.weight", config.mlp_width, config.hidden)};
  spec.up_biases = {file_vector(prefix + "mlp.c_fc.bias", config.mlp_width)};
  spec.down_weight = conv1d(prefix + "mlp.c_proj.weight", config.hidden, config.mlp_width, residual_divisor(config));
  spec.down_bias = file_vector(prefix + "mlp.c_proj.bias", config.hidden);
  spec.activation = config.activation;
  return spec;
}

}  // namespace

void add_gpt2_units(ModelBuilder& builder, const ModelConfig& config, HeadMode head) {
  if (config.activation == Activation::silu) {
    throw InputError(fmt::format("{}: activation_function silu is not computed", name_of(config.family)),
                     "use gelu_new, gelu_pytorch_tanh or gelu");
  }
  const Embedding embedding = add_embedding(builder, "x 0",
                                            {file_matrix("transformer.wte.weight", config.vocab, config.hidden),
                                             file_matrix("transformer.wpe.weight", config.max_positions, config.hidden)});
  StreamValue x = embedding.output;
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    x = add_attention(builder, x, fmt::format("x {}", 2 * layer + 1), attention_spec(config, layer));
    x = add_mlp(builder, x, fmt::format("x {}", 2 * layer + 2), mlp_spec(config, layer));
  }
  const NormOutput xn = add_final_norm(builder, x, layer_norm(config, "transformer.ln_f"));
  const std::vector<int> blocks =
      config.tied_embeddings ? embedding.blocks
                             : add_vocabulary_blocks(builder, "head", file_matrix("lm_head.weight", config.vocab, config.hidden));
  add_head(builder, xn, head, {config.hidden, config.vocab, blocks});
}

}  // namespace spillway
