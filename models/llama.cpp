#include "models/llama.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "memory/base/bfloat16.h"
#include "memory/base/float16.h"
#include "models/attention.h"
#include "models/embedding.h"
#include "models/experts.h"
#include "models/head.h"
#include "models/mlp.h"
#include "models/routing.h"

namespace spillway {
namespace {

// Weight and offset begin at 1 together.
FileTensor norm_weight(const ModelConfig& config, const std::string& name, std::int64_t elements) {
  return file_vector(name + ".weight", elements, config.family->norm_offset == 0 ? Initial::ones : Initial::zeros);
}

NormSpec rms_norm(const ModelConfig& config, const std::string& name) {
  return {norm_weight(config, name, config.hidden), std::nullopt, static_cast<float>(config.norm_eps),
          static_cast<float>(config.family->norm_offset)};
}

// The norm before or after a block, where the family has one.
std::optional<NormSpec> block_norm(const ModelConfig& config, const std::string& prefix, const char* name) {
  if (name == nullptr) return std::nullopt;
  return rms_norm(config, prefix + name);
}

// Sets the order, unless it is the file's.
void order_rows(FileTensor& tensor, std::vector<RowRange> order) {
  if (order.size() > 1) tensor.order = std::move(order);
}

FileTensor fused_qkv(const ModelConfig& config, const std::string& name, const Rope& turns) {
  const std::int64_t D = config.head_dim, heads = config.heads + config.kv_heads, rows = (heads + config.kv_heads) * D;
  FileTensor tensor = file_matrix(name, rows, config.hidden);
  std::vector<RowRange> order = rows_of_heads(turns, config.family->rotary, 0, heads, D);
  if (order.size() == 1) return tensor;
  order.push_back({heads * D, config.kv_heads * D});
  order_rows(tensor, std::move(order));
  return tensor;
}

AttentionSpec attention_spec(const ModelConfig& config, std::int64_t layer, const RopeTables& rope) {
  const std::string prefix = fmt::format("{}layers.{}.", config.tensor_prefix(), layer);
  const std::string attention = prefix + "self_attn.";
  const std::int64_t H = config.hidden, D = config.head_dim;
  const std::int64_t q_rows = config.heads * D, kv_rows = config.kv_heads * D;
  AttentionSpec spec;
  spec.name = fmt::format("layer {} attention", layer);
  spec.norm = block_norm(config, prefix, config.family->norm_names.attention);
  spec.post_norm = block_norm(config, prefix, config.family->norm_names.after_attention);
  const Rope& turns = config.rope_of(layer);
  const auto ordered = [&](FileTensor tensor, std::int64_t heads) {
    if (config.rotates(layer)) order_rows(tensor, rows_of_heads(turns, config.family->rotary, 0, heads, D));
    return tensor;
  };
  if (config.family->fused_qkv) {
    spec.qkv_weights = {fused_qkv(config, attention + "qkv_proj.weight", config.rotates(layer) ? turns : Rope{})};
  } else {
    spec.qkv_weights = {ordered(file_matrix(attention + "q_proj.weight", q_rows, H), config.heads),
                        ordered(file_matrix(attention + "k_proj.weight", kv_rows, H), config.kv_heads),
                        file_matrix(attention + "v_proj.weight", kv_rows, H)};
  }
  if (config.qkv_bias) {
    spec.qkv_biases = {ordered(file_vector(attention + "q_proj.bias", q_rows), config.heads),
                       ordered(file_vector(attention + "k_proj.bias", kv_rows), config.kv_heads),
                       file_vector(attention + "v_proj.bias", kv_rows)};
  }
  if (const QkNorm over = config.family->qk_norm; over == QkNorm::each_head) {
    spec.q_norm = ordered(norm_weight(config, attention + "q_norm", D), 1);
    spec.k_norm = ordered(norm_weight(config, attention + "k_norm", D), 1);
  } else if (over == QkNorm::all_heads) {
    spec.q_norm = ordered(norm_weight(config, attention + "q_norm", q_rows), config.heads);
    spec.k_norm = ordered(norm_weight(config, attention + "k_norm", kv_rows), config.kv_heads);
    spec.norms_all_heads = true;
  }
  spec.head_norm_epsilon = static_cast<float>(config.norm_eps);
  if (spec.q_norm) spec.head_norm_offset = static_cast<float>(config.family->norm_offset);
  if (config.family->sinks) spec.sinks = file_vector(attention + "sinks", config.heads, Initial::normal);
  spec.output_weight = file_matrix(attention + "o_proj.weight", H, q_rows);
  if (config.attention_output_bias) spec.output_bias = file_vector(attention + "o_proj.bias", H);
  spec.heads = config.heads;
  spec.kv_heads = config.kv_heads;
  spec.head_dim = D;
  spec.window = config.windows[static_cast<std::size_t>(layer)];
  spec.scale = static_cast<float>(config.attention_scale(layer));
  spec.softcap = static_cast<float>(config.attention_softcap);
  spec.residual_factor = static_cast<float>(config.residual_factor);
  if (config.rotates(layer)) spec.rope = rope;
  return spec;
}

MlpSpec mlp_spec(const ModelConfig& config, std::int64_t layer) {
  const std::string prefix = fmt::format("{}layers.{}.", config.tensor_prefix(), layer);
  const std::string mlp = prefix + "mlp.";
  const std::int64_t H = config.hidden, I = config.mlp_width;
  MlpSpec spec;
  spec.name = fmt::format("layer {} mlp", layer);
  spec.norm = block_norm(config, prefix, config.family->norm_names.mlp);
  spec.post_norm = block_norm(config, prefix, config.family->norm_names.after_mlp);
  if (config.family->fused_gate_up) {
    spec.up_weights = {file_matrix(mlp + "gate_up_proj.weight", 2 * I, H)};
  } else {
    spec.up_weights = {file_matrix(mlp + "gate_proj.weight", I, H), file_matrix(mlp + "up_proj.weight", I, H)};
  }
  spec.down_weight = file_matrix(mlp + "down_proj.weight", H, I);
  if (config.mlp_bias) {
    spec.up_biases = {file_vector(mlp + "gate_proj.bias", I), file_vector(mlp + "up_proj.bias", I)};
    spec.down_bias = file_vector(mlp + "down_proj.bias", H);
  }
  spec.activation = config.activation;
  spec.residual_factor = static_cast<float>(config.residual_factor);
  return spec;
}

// An expert with three tensors of its own.
ExpertSpec own_expert(const FamilyExperts& names, const std::string& prefix, std::int64_t H, std::int64_t I) {
  const auto matrix = [&](const char* name, std::int64_t out, std::int64_t in) {
    return whole(file_matrix(prefix + name + ".weight", out, in));
  };
  ExpertSpec spec;
  spec.width = I;
  spec.up = {matrix(names.gate, I, H), matrix(names.up, I, H)};
  spec.down = matrix(names.down, H, I);
  return spec;
}

// One of those that share tensors of three dimensions: gate and up in one, down in the other.
ExpertSpec stacked_expert(const ModelConfig& config, const std::string& prefix, std::int64_t expert) {
  const FamilyExperts& family = config.family->experts;
  const std::int64_t E = config.experts, H = config.hidden, I = config.expert_width;
  const auto matrix = [&](const char* name, std::int64_t out, std::int64_t in) {
    FileTensor all = family.transposed ? file_matrix(prefix + name, out, E * in, FileLayout::transposed)
                                       : file_matrix(prefix + name + ".weight", E * out, in);
    all.stacked = E;
    return FileRows{std::move(all), expert * (family.transposed ? in : out), family.transposed ? in : out};
  };
  const auto bias = [&](const char* name, std::int64_t out) {
    FileTensor all = file_matrix(prefix + name + "_bias", E, out);
    all.initial = Initial::zeros;
    return FileRows{std::move(all), expert, 1};
  };
  ExpertSpec spec;
  spec.width = I;
  spec.up = {matrix(family.up, 2 * I, H)};
  spec.down = matrix(family.down, H, I);
  if (family.biased) spec.up_bias = bias(family.up, 2 * I), spec.down_bias = bias(family.down, H);
  return spec;
}

ExpertsSpec experts_spec(const ModelConfig& config, std::int64_t layer) {
  const std::string prefix = fmt::format("{}layers.{}.", config.tensor_prefix(), layer);
  const FamilyExperts& names = config.family->experts;
  const std::string mlp = prefix + names.block + ".";
  const std::int64_t H = config.hidden, I = config.expert_width;
  ExpertsSpec spec;
  spec.name = fmt::format("layer {}", layer);
  spec.norm = rms_norm(config, prefix + config.family->norm_names.mlp);
  spec.router = file_matrix(mlp + names.router + ".weight", config.experts, H);
  if (names.biased) spec.router_bias = file_vector(mlp + names.router + ".bias", config.experts);
  for (std::int64_t expert = 0; expert < config.experts; ++expert)
    spec.experts.push_back(names.stacked ? stacked_expert(config, mlp, expert)
                                         : own_expert(names, fmt::format("{}experts.{}.", mlp, expert), H, I));
  if (const std::int64_t width = config.shared_expert_width; width > 0) {
    spec.shared = own_expert(names, mlp + "shared_expert.", H, width);
    spec.shared_gate = file_matrix(mlp + "shared_expert_gate.weight", 1, H);
  }
  spec.factor = static_cast<float>(config.residual_factor);
  spec.per_row = config.experts_per_token;
  spec.normalised = config.normalised_experts;
  spec.activation = config.activation;
  spec.layer = layer;
  spec.losses = {config.balance_coefficient, config.router_z_coefficient};
  spec.layers = config.layers_with_experts();
  return spec;
}

// The factor is rounded to the type in which it is multiplied, as Hugging Face does.
float embedding_factor(const ModelConfig& config, DType dtype) {
  const auto factor = static_cast<float>(config.embedding_factor);
  if (dtype == DType::float16) return Float16::from_float(factor).to_float();
  return dtype == DType::bfloat16 ? BFloat16::from_float(factor).to_float() : factor;
}

// Adds the cosines, then the sines, of the positions that a call can stand at; then those of queries, where they have their own.
RopeTables add_rope_tables(ModelBuilder& builder, const Rope& rope, std::int64_t head_dim) {
  const std::int64_t positions = std::max(builder.compute().sequence, builder.compute().context);
  const std::int64_t elements = positions * (head_dim / 2);
  const Bytes bytes = elements * static_cast<Bytes>(sizeof(float));
  RopeTables tables{builder.add_constant(bytes), builder.add_constant(bytes), {}, {}};
  if (rope.query_beta > 0) tables.q_cosine = builder.add_constant(bytes), tables.q_sine = builder.add_constant(bytes);
  builder.fill_constants([=](std::span<std::byte> constants) {
    const auto table = [&](const Place& place) {
      return std::span(reinterpret_cast<float*>(constants.data() + place.offset), static_cast<std::size_t>(elements));
    };
    fill_rope_tables(rope, head_dim, positions, TableOf::keys, table(tables.cosine), table(tables.sine));
    if (tables.q_cosine)
      fill_rope_tables(rope, head_dim, positions, TableOf::queries, table(tables.q_cosine), table(tables.q_sine));
  });
  return tables;
}

}  // namespace

void add_llama_units(ModelBuilder& builder, const ModelConfig& config, HeadMode head) {
  const std::string prefix(config.tensor_prefix());
  const RopeTables rope = add_rope_tables(builder, config.rope, config.head_dim);
  const RopeTables window_rope =
      config.window_rope ? add_rope_tables(builder, *config.window_rope, config.head_dim) : RopeTables{};
  const Embedding embedding = add_embedding(builder, "x 0",
                                            {.tokens = file_matrix(prefix + "embed_tokens.weight", config.vocab, config.hidden),
                                             .factor = embedding_factor(config, builder.compute().dtype),
                                             .padding = config.padding_token});
  int totals = -1;  // of all routers
  if (config.experts > 0) {
    const RouterLosses losses{config.balance_coefficient, config.router_z_coefficient};
    builder.set_experts(losses);
    totals = builder.add_value("router totals", ops::router_totals(config.experts) * static_cast<Bytes>(sizeof(double)));
  }
  StreamValue x = embedding.output;
  std::int64_t with_experts = 0;
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    const RopeTables& turns = config.has_window_rope(layer) ? window_rope : rope;
    x = add_attention(builder, x, fmt::format("x {}", 2 * layer + 1), attention_spec(config, layer, turns));
    const std::string output = fmt::format("x {}", 2 * layer + 2);
    if (!config.has_experts(layer)) {
      x = add_mlp(builder, x, output, mlp_spec(config, layer));
      continue;
    }
    ExpertsSpec experts = experts_spec(config, layer);
    experts.totals = totals;
    experts.is_first = with_experts++ == 0;
    experts.is_last = with_experts == experts.layers;
    x = add_experts(builder, x, output, experts);
  }
  const NormOutput xn = add_final_norm(builder, x, rms_norm(config, prefix + "norm"));
  const std::vector<int> blocks =
      config.tied_embeddings ? embedding.blocks
                             : add_vocabulary_blocks(builder, "head", file_matrix("lm_head.weight", config.vocab, config.hidden));
  add_head(
      builder, xn, head,
      {config.hidden, config.vocab, blocks, static_cast<float>(config.logit_softcap), static_cast<float>(config.logit_factor)});
}

}  // namespace spillway
