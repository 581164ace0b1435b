// What holds for the units of every family: graphs that the planner can believe, cuts that follow from the model, bits that do
// not depend on how the head runs, on threads or on recomputation, gradients that are the slopes of the loss, and weights that
// pass between blocks and files whole.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <set>

#include "models/config.h"
#include "models/safetensors.h"
#include "tests/models/in_core_runner.h"

namespace spillway::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using Tensors = std::map<std::string, std::vector<float>>;

constexpr std::int64_t kSequence = 48, kBatch = 2, kVocabulary = 300;

// Small shapes with every feature somewhere; no size is a multiple of another without need.
ModelConfig small_config(const std::string& which) {
  ModelConfig config;
  config.hidden = 64;
  config.layers = 2;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_dim = 16;
  config.mlp_width = 208;
  config.vocab = kVocabulary;
  config.max_positions = 64;
  config.norm_eps = 1e-5;
  config.rope_theta = 10000;
  config.windows = {0, 0};
  config.initializer_range = 0.15;  // gradients that stand out of fp32's noise
  if (which == "gpt2") {
    config.family = find_family("gpt2");
    config.norm = NormKind::layer;
    config.gated_mlp = false;
    config.learned_positions = true;
    config.kv_heads = 4;
    config.rope_theta = 0;
    config.activation = Activation::gelu_tanh;
    config.qkv_bias = config.attention_output_bias = config.mlp_bias = config.tied_embeddings = true;
  } else if (which == "llama3") {
    config.rope_scaling = {RopeScaling::Kind::llama3, 8, 1, 4, 16};
    config.mlp_bias = config.attention_output_bias = config.qkv_bias = true;
  } else if (which == "mistral") {
    config.family = find_family("mistral");
    config.windows = {7, 0};
  } else if (which == "qwen2") {
    config.family = find_family("qwen2");
    config.qkv_bias = config.tied_embeddings = true;
    config.rope_scaling = {RopeScaling::Kind::linear, 4, 1, 4, 0};
  } else if (which == "qwen3") {
    config.family = find_family("qwen3");
    config.head_dim = 24;
    config.qk_norm = true;
    config.windows = {0, 16};
  } else if (which == "gemma2") {
    config.family = find_family("gemma2");
    config.head_dim = 20;
    config.norm_offset = 1;
    config.post_norms = config.tied_embeddings = true;
    config.activation = Activation::gelu_tanh;
    config.query_scalar = 24;
    config.attention_softcap = 5;
    config.logit_softcap = 4;
    config.embedding_factor = 8;
    config.padding_token = 3;
    config.windows = {7, 0};
  }
  return config;
}

// Tiles everywhere: 5 of the vocabulary, 4 of the MLP, strips of rows that do not divide their number.
constexpr Cuts kManyCuts{.vocabulary_rows = 64, .mlp_columns = 64, .head_strip = 40};
constexpr Cuts kNoCuts{.vocabulary_rows = 1 << 20, .mlp_columns = 1 << 20, .head_strip = 1 << 20};

struct Batch {
  std::vector<std::int32_t> tokens, targets;
};
Batch random_batch(std::int64_t sequences, std::uint32_t seed) {
  std::mt19937 random(seed);
  Batch batch;
  for (std::int64_t i = 0; i < sequences * kSequence; ++i) {
    batch.tokens.push_back(static_cast<std::int32_t>(random() % kVocabulary));
    batch.targets.push_back(random() % 7 == 0 ? -100 : static_cast<std::int32_t>(random() % kVocabulary));
  }
  return batch;
}

class Families : public ::testing::TestWithParam<std::string> {
 protected:

  BuildOptions options(DType dtype, HeadMode head) { return {dtype, kBatch, kSequence, head}; }
  InCoreRunner drawn(DType dtype, HeadMode head, const Cuts& cuts) {
    InCoreRunner runner(small_config(GetParam()), options(dtype, head), cuts);
    runner.draw(7);
    return runner;
  }
};

void expect_same_bits(const Tensors& a, const Tensors& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, values] : a) {
    ASSERT_EQ(values.size(), b.at(name).size()) << name;
    EXPECT_EQ(std::memcmp(values.data(), b.at(name).data(), 4 * values.size()), 0) << name;
  }
}

TEST_P(Families, GraphIsConsistent) {
  const ModelConfig config = small_config(GetParam());
  for (const HeadMode head : {HeadMode::tiled, HeadMode::fused}) {
    for (const Cuts& cuts : {kManyCuts, kNoCuts}) {
      const CompiledModel model = build_model_with_cuts(config, options(DType::bfloat16, head), cuts);
      const UnitGraph& graph = model.graph;
      ASSERT_EQ(graph.units.size(), model.code.size());
      EXPECT_EQ(graph.parameters, parameter_count(config));
      EXPECT_EQ(graph.rows, kBatch * kSequence);

      // Every element of every tensor of the file lies in one piece.
      std::map<std::string, std::int64_t> elements, wanted;
      std::map<int, std::string> indices;
      for (const ParameterBlock& block : graph.blocks) {
        EXPECT_EQ(block.elements % kBlockElements, 0) << block.name;
        std::int64_t end = 0;
        for (const TensorPiece& piece : block.pieces) {
          EXPECT_GE(piece.begin, end) << piece.tensor;
          end = piece.begin + piece.elements();
          elements[piece.tensor] += piece.elements();
          wanted[piece.tensor] =
              std::accumulate(piece.file_shape.begin(), piece.file_shape.end(), std::int64_t{1}, std::multiplies<>());
          EXPECT_EQ(indices.try_emplace(piece.tensor_index, piece.tensor).first->second, piece.tensor);
          EXPECT_EQ(piece.decay == Decay::applied, piece.file_shape.size() >= 2) << piece.tensor;
        }
        EXPECT_LE(end, block.elements);
      }
      EXPECT_EQ(elements, wanted);
      EXPECT_EQ(static_cast<int>(indices.size()), graph.tensors);
      EXPECT_EQ(indices.rbegin()->first + 1, graph.tensors);

      // A value is written before it is read, and written once; saved values are the unit's own.
      std::set<int> written, trained;
      const auto follow = [&](const Unit& unit, const std::vector<ValueUse>& uses) {
        for (const ValueUse& use : uses) {
          const std::string& name = graph.values[static_cast<std::size_t>(use.value)].name;
          if (use.access == Access::write) {
            EXPECT_TRUE(written.insert(use.value).second) << unit.name << " writes " << name << " again";
          } else {
            EXPECT_TRUE(written.contains(use.value)) << unit.name << " uses " << name << " before it is written";
          }
        }
      };
      for (const Unit& unit : graph.units) follow(unit, unit.forward);
      for (auto unit = graph.units.rbegin(); unit != graph.units.rend(); ++unit) {
        follow(*unit, unit->backward);
        for (const int block : unit->gradient_blocks) trained.insert(block);
        EXPECT_EQ(unit->forward_workspace % 64, 0);
        EXPECT_EQ(unit->backward_workspace % 64, 0);
      }
      EXPECT_EQ(written.size(), graph.values.size());
      EXPECT_EQ(trained.size(), graph.blocks.size());
      for (std::size_t u = 0; u < graph.units.size(); ++u) {
        for (const int value : graph.units[u].saved) {
          for (std::size_t other = 0; other < graph.units.size(); ++other) {
            if (other == u) continue;
            for (const ValueUse& use : graph.units[other].forward) EXPECT_NE(use.value, value) << graph.units[other].name;
            for (const ValueUse& use : graph.units[other].backward) EXPECT_NE(use.value, value) << graph.units[other].name;
          }
        }
      }
    }
  }
}

// 6 flops a weight of a matrix and row in all: 2 in the forward, 4 in the backward; the fused head has its forward there, too.
TEST_P(Families, WorkCountsEveryProductOnce) {
  const ModelConfig config = small_config(GetParam());
  for (const HeadMode head : {HeadMode::tiled, HeadMode::fused}) {
    const CompiledModel model = build_model_with_cuts(config, options(DType::float32, head), kManyCuts);
    double weights = 0, head_weights = static_cast<double>(config.vocab * config.hidden), forward = 0, backward = 0;
    for (const ParameterBlock& block : model.graph.blocks) {
      for (const TensorPiece& piece : block.pieces) {
        const bool is_table = piece.tensor.find("wte") != std::string::npos || piece.tensor.find("wpe") != std::string::npos ||
                              piece.tensor.find("embed_tokens") != std::string::npos || piece.tensor == "lm_head.weight";
        if (piece.file_shape.size() == 2 && !is_table) weights += static_cast<double>(piece.elements());
      }
    }
    for (const Unit& unit : model.graph.units) {
      forward += unit.forward_work.gemm_flops;
      backward += unit.backward_work.gemm_flops;
    }
    const double rows = static_cast<double>(model.graph.rows);
    EXPECT_DOUBLE_EQ(forward, rows * (2 * weights + (head == HeadMode::tiled ? 2 * head_weights : 0)));
    EXPECT_DOUBLE_EQ(backward, rows * (4 * weights + (head == HeadMode::tiled ? 4 : 6) * head_weights));
  }
}

TEST_P(Families, TiledAndFusedHeadsGiveTheSameBits) {
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    const Batch batch = random_batch(2 * kBatch, 3);  // two micro-batches
    InCoreRunner tiled = drawn(dtype, HeadMode::tiled, kManyCuts), fused = drawn(dtype, HeadMode::fused, kManyCuts);
    const double a = tiled.backward(batch.tokens, batch.targets), b = fused.backward(batch.tokens, batch.targets);
    EXPECT_EQ(std::bit_cast<std::uint64_t>(a), std::bit_cast<std::uint64_t>(b));
    expect_same_bits(tiled.gradients(), fused.gradients());
  }
}

TEST_P(Families, RecomputationGivesTheSameBits) {
  for (const Cuts& cuts : {kManyCuts, kNoCuts}) {
    const Batch batch = random_batch(kBatch, 4);
    InCoreRunner runner = drawn(DType::bfloat16, HeadMode::tiled, cuts);
    const double kept = runner.backward(batch.tokens, batch.targets, SavedValues::kept);
    const Tensors gradients = runner.gradients();
    EXPECT_EQ(kept, runner.backward(batch.tokens, batch.targets, SavedValues::recomputed));
    expect_same_bits(gradients, runner.gradients());
  }
}

TEST_P(Families, ThreadsDoNotChangeTheBits) {
  const Batch batch = random_batch(kBatch, 5);
  InCoreRunner two = drawn(DType::bfloat16, HeadMode::tiled, kManyCuts);
  InCoreRunner one(small_config(GetParam()), {DType::bfloat16, kBatch, kSequence, HeadMode::tiled}, kManyCuts, 1);
  one.draw(7);
  EXPECT_EQ(two.backward(batch.tokens, batch.targets), one.backward(batch.tokens, batch.targets));
  expect_same_bits(two.gradients(), one.gradients());
}

// Cuts change the order of sums, nothing else; the weights are the same because they are drawn by the file's places.
TEST_P(Families, CutsChangeRoundingOnly) {
  const Batch batch = random_batch(kBatch, 6);
  InCoreRunner cut = drawn(DType::float32, HeadMode::tiled, kManyCuts), whole = drawn(DType::float32, HeadMode::tiled, kNoCuts);
  expect_same_bits(cut.parameters(), whole.parameters());
  const double loss = cut.backward(batch.tokens, batch.targets);
  EXPECT_NEAR(loss, whole.backward(batch.tokens, batch.targets), 1e-5 * loss);
  const Tensors gradients = whole.gradients();
  for (const auto& [name, values] : cut.gradients()) {
    double difference = 0, norm = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double expected = gradients.at(name)[i];
      difference += (values[i] - expected) * (values[i] - expected);
      norm += expected * expected;
    }
    EXPECT_LT(std::sqrt(difference), 1e-4 * std::sqrt(norm) + 1e-7) << name;
  }
}

// Along a direction d the loss must change by (gradient . d). Directions are the gradient's own with as much noise beside it, so
// that neither too much nor a part that is missing goes unseen: a part of the gradient that is not there would still show.
TEST_P(Families, GradientsAreTheSlopesOfTheLoss) {
  const Batch batch = random_batch(kBatch, 8);
  InCoreRunner runner = drawn(DType::float32, HeadMode::tiled, kManyCuts);
  // Norm weights around 1 and biases that are not 0.
  std::mt19937 random(9);
  std::normal_distribution<float> normal;
  Tensors scatter;
  for (const auto& [name, values] : runner.parameters()) {
    if (name.find("norm") == std::string::npos && name.find("ln_") == std::string::npos && !name.ends_with("bias")) continue;
    for (std::size_t i = 0; i < values.size(); ++i) scatter[name].push_back(0.2f * normal(random));
  }
  runner.move(scatter, 1);

  runner.backward(batch.tokens, batch.targets);
  const Tensors gradients = runner.gradients();
  double all = 0;
  for (const auto& [name, gradient] : gradients) {
    for (const float g : gradient) all += static_cast<double>(g) * g;
  }
  for (const auto& [name, gradient] : gradients) {
    double norm = 0;
    for (const float g : gradient) norm += static_cast<double>(g) * g;
    norm = std::sqrt(norm);
    std::vector<float> direction;
    double length = 0, slope = 0;
    for (const float g : gradient) {
      const double noise = normal(random) * (norm > 0 ? norm : 1) / std::sqrt(static_cast<double>(gradient.size()));
      direction.push_back(static_cast<float>(g + noise));
      length += static_cast<double>(direction.back()) * direction.back();
    }
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      direction[i] = static_cast<float>(direction[i] / std::sqrt(length));
      slope += static_cast<double>(gradient[i]) * direction[i];
    }
    constexpr double kStep = 1e-2;
    Tensors along;
    along[name] = direction;
    runner.move(along, kStep);
    const double above = runner.loss(batch.tokens, batch.targets);
    runner.move(along, -2 * kStep);
    const double below = runner.loss(batch.tokens, batch.targets);
    runner.move(along, kStep);
    // fp32's noise on a loss of about 6 over twice the step; and the third derivative.
    const double measured = (above - below) / (2 * kStep);
    EXPECT_NEAR(measured, slope, 1e-4 + 1e-2 * std::abs(slope)) << name << ", of a gradient of norm " << std::sqrt(all);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Families, ::testing::Values("gpt2", "llama3", "mistral", "qwen2", "qwen3", "gemma2"),
                         [](const auto& family) { return family.param; });

TEST(Cuts, FollowFromTheModel) {
  ModelConfig gpt2 = small_config("gpt2");
  gpt2.vocab = 50257;
  EXPECT_EQ(canonical_cuts(gpt2).vocabulary_rows, 7232);
  EXPECT_GE(canonical_cuts(gpt2).mlp_columns, gpt2.mlp_width);

  ModelConfig seven_b = small_config("mistral");
  seven_b.hidden = 4096;
  seven_b.mlp_width = 11008;
  seven_b.vocab = 32000;
  EXPECT_EQ(canonical_cuts(seven_b).vocabulary_rows, 8000);
  EXPECT_EQ(canonical_cuts(seven_b).mlp_columns, 3712);  // 129 Mi elements: 3 tiles
}

TEST(Build, RefusesWhatCannotBeComputed) {
  ModelConfig config = small_config("mistral");
  const auto message_of = [&](DType dtype, std::int64_t sequence) -> std::string {
    try {
      build_model(config, {dtype, 1, sequence, HeadMode::tiled});
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(message_of(DType::bfloat16, 65), HasSubstr("--seq-length 65 is longer than the 64 positions"));
  EXPECT_THAT(message_of(DType::float16, 64), HasSubstr("fp16"));
  EXPECT_THAT(message_of(DType::bfloat16, 0), HasSubstr("no rows"));
  EXPECT_EQ(message_of(DType::bfloat16, 64), "");
}

TEST(InitialWeights, AreNormalAndTheirOwnSeeds) {
  const ModelConfig config = small_config("gpt2");
  InCoreRunner runner(config, {DType::float32, 1, 8, HeadMode::tiled}, kNoCuts);
  runner.draw(1);
  const Tensors one = runner.parameters();
  for (const auto& [name, values] : one) {
    double sum = 0, squares = 0;
    for (const float v : values) {
      sum += v;
      squares += static_cast<double>(v) * v;
    }
    const double count = static_cast<double>(values.size());
    if (name.ends_with("bias")) {
      EXPECT_EQ(squares, 0) << name;
    } else if (name.find("ln_") != std::string::npos) {
      EXPECT_EQ(sum, count) << name;
    } else {
      // GPT-2's residual projections: 1 / sqrt(2 layers).
      const double expected = name.ends_with("c_proj.weight") ? config.initializer_range / 2 : config.initializer_range;
      EXPECT_NEAR(sum / count, 0, 5 * expected / std::sqrt(count)) << name;
      EXPECT_NEAR(std::sqrt(squares / count), expected, 5 * expected / std::sqrt(2 * count)) << name;
    }
  }
  runner.draw(2);
  EXPECT_NE(runner.parameters().at("transformer.wte.weight"), one.at("transformer.wte.weight"));
}

// A seed means the same weights in every version.
TEST(InitialWeights, AreThoseOfTheirSeedForEver) {
  const std::pair<const char*, std::uint64_t> sums[] = {
      {"gpt2", 4191440318533311363u},
      {"llama3", 8297050206661613370u},
      {"mistral", 10503668141004802752u},
      {"qwen2", 12233651414290215573u},
      {"qwen3", 10816029777126108943u}};
  for (const auto& [which, expected] : sums) {
    InCoreRunner runner(small_config(which), {DType::float32, 1, 8, HeadMode::tiled}, kManyCuts);
    runner.draw(1);
    std::uint64_t sum = 0xcbf29ce484222325;  // FNV-1a over tensors by name
    for (const auto& [name, values] : runner.parameters()) {
      for (const float v : values) sum = (sum ^ std::bit_cast<std::uint32_t>(v)) * 0x100000001b3;
    }
    EXPECT_EQ(sum, expected) << which;
  }
}

TEST(InitialWeights, OfNormsWithAnOffsetAreZero) {
  ModelConfig config = small_config("qwen3");
  config.norm_offset = 1;
  InCoreRunner runner(config, {DType::float32, 1, 8, HeadMode::tiled}, kNoCuts);
  runner.draw(1);
  int norms = 0;
  for (const auto& [name, values] : runner.parameters()) {
    if (name.find("norm") == std::string::npos) continue;
    EXPECT_EQ(values, std::vector<float>(values.size(), 0.0f)) << name;
    ++norms;
  }
  EXPECT_EQ(norms, 2 * 4 + 1);
}

// --- Weights in files -----------------------------------------------------------------------------------------------------

class WeightFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "spillway_weights_XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
  }
  void TearDown() override { fs::remove_all(directory_); }

  fs::path file() const { return directory_ / "model.safetensors"; }
  UnitGraph graph_of(const ModelConfig& config, const Cuts& cuts) {
    return build_model_with_cuts(config, {DType::bfloat16, 1, 8, HeadMode::tiled}, cuts).graph;
  }
  void write(const UnitGraph& graph, const std::vector<std::vector<float>>& blocks, ElementType type) {
    SafetensorsWriter writer(file(), tensors_to_write(graph, type));
    export_weights(
        graph, type,
        [&](int block, std::int64_t begin, std::span<float> out) {
          EXPECT_LE(static_cast<std::int64_t>(out.size()), kWeightsRange);
          std::copy_n(blocks[static_cast<std::size_t>(block)].begin() + begin, out.size(), out.begin());
        },
        [&](std::string_view tensor, std::span<const std::byte> data) { writer.append(tensor, data); });
    writer.finish();
  }
  static std::vector<std::vector<float>> drawn(const ModelConfig& config, const UnitGraph& graph) {
    std::vector<std::vector<float>> blocks;
    for (const ParameterBlock& block : graph.blocks) {
      blocks.emplace_back(static_cast<std::size_t>(block.elements));
      initial_block_range(config, block, 5, 0, blocks.back());
    }
    return blocks;
  }
  std::string check_error(const ModelConfig& config, const UnitGraph& graph) {
    try {
      check_weights(SafetensorsReader(file()), config, graph);
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  }

  fs::path directory_;
};

TEST_F(WeightFiles, PassThroughAFileWhole) {
  for (const std::string which : {"gpt2", "llama3", "qwen3"}) {
    const ModelConfig config = small_config(which);
    const UnitGraph cut = graph_of(config, kManyCuts), whole = graph_of(config, kNoCuts);
    write(cut, drawn(config, cut), ElementType::f32);
    const SafetensorsReader reader(file());
    check_weights(reader, config, whole);
    const std::vector<std::vector<float>> expected = drawn(config, whole);
    for (std::size_t b = 0; b < expected.size(); ++b) {
      // In ranges that begin and end within rows.
      std::vector<float> values(expected[b].size());
      constexpr std::size_t kRange = 1237;
      for (std::size_t begin = 0; begin < values.size(); begin += kRange) {
        const std::size_t size = std::min(kRange, values.size() - begin);
        read_block_range(reader, whole.blocks[b], static_cast<std::int64_t>(begin), std::span(values).subspan(begin, size));
      }
      EXPECT_EQ(values, expected[b]) << which << ' ' << whole.blocks[b].name;
    }
  }
}

TEST_F(WeightFiles, AreRoundedToBFloat16) {
  const ModelConfig config = small_config("qwen2");
  const UnitGraph graph = graph_of(config, kManyCuts);
  const std::vector<std::vector<float>> blocks = drawn(config, graph);
  write(graph, blocks, ElementType::bf16);
  const SafetensorsReader reader(file());
  std::vector<float> values(blocks[0].size());
  read_block_range(reader, graph.blocks[0], 0, values);
  for (std::size_t i = 0; i < values.size(); ++i) ASSERT_EQ(values[i], BFloat16::from_float(blocks[0][i]).to_float());
}

// A file of given tensors, all of zeros.
void write_zeros(const fs::path& file, const std::vector<TensorToWrite>& tensors) {
  SafetensorsWriter writer(file, tensors);
  for (const TensorToWrite& tensor : tensors) {
    const std::int64_t elements = std::accumulate(tensor.shape.begin(), tensor.shape.end(), std::int64_t{1}, std::multiplies<>());
    writer.append(tensor.name, std::vector<std::byte>(static_cast<std::size_t>(elements * size_of(tensor.type))));
  }
  writer.finish();
}

TEST_F(WeightFiles, AreCheckedByName) {
  const ModelConfig config = small_config("gpt2");
  const UnitGraph graph = graph_of(config, kManyCuts);
  const std::vector<TensorToWrite> right = tensors_to_write(graph, ElementType::bf16);

  // Old files: no prefix, the attention mask as a buffer, the tied head's copy.
  std::vector<TensorToWrite> old = right;
  for (TensorToWrite& tensor : old) tensor.name = tensor.name.substr(std::string("transformer.").size());
  old.push_back({"h.0.attn.bias", ElementType::f32, {1, 1, 64, 64}});
  old.push_back({"lm_head.weight", ElementType::bf16, {kVocabulary, 64}});
  write_zeros(file(), old);
  EXPECT_EQ(check_error(config, graph), "");

  std::vector<TensorToWrite> missing = right;
  missing.erase(missing.begin() + 3);
  write_zeros(file(), missing);
  EXPECT_THAT(check_error(config, graph), HasSubstr("1 of the model's 28 tensors are missing: " + right[3].name));

  std::vector<TensorToWrite> unexpected = right;
  unexpected.push_back({"transformer.h.2.ln_1.weight", ElementType::bf16, {64}});
  write_zeros(file(), unexpected);
  EXPECT_THAT(check_error(config, graph), HasSubstr("transformer.h.2.ln_1.weight"));

  std::vector<TensorToWrite> misshapen = right;
  misshapen[0].shape[1] += 1;
  write_zeros(file(), misshapen);
  EXPECT_THAT(check_error(config, graph), HasSubstr(right[0].name));
}

}  // namespace
}  // namespace spillway::testing
