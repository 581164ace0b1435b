// Properties of the units of every family: graphs that the planner can rely on, cuts that follow from the model, bits that do not
// depend on how the head runs, on threads or on recomputation, and gradients that are the slopes of the loss.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <random>
#include <set>

#include "files/safetensors.h"
#include "models/catalogue/catalogue.h"
#include "models/config.h"
#include "tests/golden.h"
#include "tests/models/in_core_runner.h"
#include "tests/models/small_families.h"

namespace spillway::testing {
namespace {

using ::testing::HasSubstr;
using Tensors = std::map<std::string, std::vector<float>>;

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

// Every element of every tensor of the file lies in one piece.
void expect_whole_tensors(const UnitGraph& graph) {
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
  EXPECT_EQ(graph.parameters, std::accumulate(elements.begin(), elements.end(), std::int64_t{0},
                                              [](std::int64_t sum, const auto& tensor) { return sum + tensor.second; }));
  EXPECT_EQ(static_cast<int>(indices.size()), graph.tensors);
  EXPECT_EQ(indices.rbegin()->first + 1, graph.tensors);
}

// A value is written before it is read, and written once; saved values are the unit's own.
void expect_values_in_order(const UnitGraph& graph) {
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

TEST_P(Families, GraphIsConsistent) {
  const ModelConfig config = small_config(GetParam());
  for (const HeadMode head : {HeadMode::tiled, HeadMode::fused}) {
    for (const Cuts& cuts : {kManyCuts, kNoCuts}) {
      const CompiledModel model = build_model_with_cuts(config, options(DType::bfloat16, head), cuts);
      const UnitGraph& graph = model.graph;
      ASSERT_EQ(graph.units.size(), model.code.size());
      EXPECT_EQ(graph.rows, kBatch * kSequence);
      expect_whole_tensors(graph);
      expect_values_in_order(graph);
    }
  }
}

// 6 flops per weight of a matrix and row in all: 2 in the forward, 4 in the backward. The fused head has its forward there, too.
TEST_P(Families, WorkCountsEveryProductOnce) {
  const ModelConfig config = small_config(GetParam());
  for (const HeadMode head : {HeadMode::tiled, HeadMode::fused}) {
    const CompiledModel model = build_model_with_cuts(config, options(DType::float32, head), kManyCuts);
    double weights = 0, head_weights = static_cast<double>(config.vocab * config.hidden), forward = 0, backward = 0;
    for (const ParameterBlock& block : model.graph.blocks) {
      for (const TensorPiece& piece : block.pieces) {
        const bool is_table = piece.tensor.find("wte") != std::string::npos || piece.tensor.find("wpe") != std::string::npos ||
                              piece.tensor.find("embed_tokens") != std::string::npos || piece.tensor == "lm_head.weight";
        if (piece.tensor.ends_with("_bias")) continue;
        const bool is_expert = piece.tensor.find("experts.") != std::string::npos || piece.file_shape.size() == 3;
        const double share = is_expert ? static_cast<double>(config.experts_per_token) / static_cast<double>(config.experts) : 1;
        if (piece.file_shape.size() >= 2 && !is_table) weights += share * static_cast<double>(piece.elements());
      }
    }
    for (const Unit& unit : model.graph.units) {
      forward += unit.forward_work.gemm_flops;
      backward += unit.backward_work.gemm_flops - unit.backward_work.repeated_flops;
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

// Cuts change only the order of sums. Weights are the same, because they are drawn by their places in the file.
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

// Along a direction d the loss must change by (gradient . d). Directions are the gradient plus as much noise, so that both a
// surplus and a missing part of the gradient show.
TEST_P(Families, GradientsAreTheSlopesOfTheLoss) {
  const Batch batch = random_batch(kBatch, 8);
  ModelConfig config = small_config(GetParam());
  config.experts_per_token = config.experts;  // where a row goes changes at once, which has no slope
  InCoreRunner runner(config, options(DType::float32, HeadMode::tiled), kManyCuts);
  runner.draw(7);
  // Puts norm weights around 1, and biases off 0.
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
    // Allows fp32's noise on a loss of about 6 over twice the step, and the third derivative.
    const double measured = (above - below) / (2 * kStep);
    EXPECT_NEAR(measured, slope, 1e-4 + 1e-2 * std::abs(slope)) << name << ", of a gradient of norm " << std::sqrt(all);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Families, ::testing::ValuesIn(trained_families()), [](const auto& family) { return family.param; });

// The tests have their lists from these three places, so a family is in each.
TEST(FamilyTable, EachHasAShapeAndAGoldenCase) {
  std::set<const FamilyRow*> shapes, golden;
  for (const CatalogueEntry& entry : catalogue()) shapes.insert(catalogue_config(entry.name).family);
  for (const std::string& name : golden_names()) golden.insert(read_model_config(golden_directory(name) + "/config.json").family);
  for (const FamilyRow& family : families()) {
    EXPECT_TRUE(shapes.contains(&family)) << family.model_type;
    EXPECT_TRUE(golden.contains(&family)) << family.model_type;
  }
}

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
  EXPECT_THAT(message_of(DType::bfloat16, 0), HasSubstr("no rows"));
  EXPECT_EQ(message_of(DType::bfloat16, 64), "");
  config.hidden = 1 << 20;
  config.mlp_width = 1 << 24;
  EXPECT_THAT(message_of(DType::bfloat16, 64), HasSubstr("more than 17592186044416 parameters"));
}

}  // namespace
}  // namespace spillway::testing
