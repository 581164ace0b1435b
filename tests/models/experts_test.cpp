// What only mixtures of experts have: two forms with the same bits, rows that come unevenly, experts that no row meets, routers
// that meet what is not a number. What all families have in common is in family_test.cpp and golden_test.cpp.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "memory/base/error.h"
#include "memory/plan/machine.h"
#include "memory/search/lane_speeds.h"
#include "models/build.h"
#include "models/catalogue/catalogue.h"
#include "models/routing.h"
#include "tests/models/counted.h"
#include "tests/models/in_core_runner.h"
#include "tests/models/small_families.h"

namespace spillway::testing {
namespace {

using Tensors = std::map<std::string, std::vector<float>>;

CompiledModel compile(const ModelConfig& config, ExpertsForm form = ExpertsForm::layer) {
  return build_model(config,
                     {.dtype = DType::bfloat16, .micro_batch = 1, .sequence = 2048, .head = HeadMode::fused, .experts = form});
}

ModelConfig shallow(std::string_view name) {
  ModelConfig config = catalogue_config(name);
  config.layers = 2;
  config.windows.resize(2);
  return config;
}

std::vector<std::int32_t> some_tokens(std::int64_t count) {
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < count; ++i) tokens.push_back(static_cast<std::int32_t>((i * i + 7 * i) % kVocabulary));
  return tokens;
}

InCoreRunner drawn(const ModelConfig& config, DType dtype, ExpertsForm form, std::int64_t micro_batch = kBatch) {
  BuildOptions options{dtype, micro_batch, kSequence, HeadMode::tiled};
  options.experts = form;
  InCoreRunner runner(config, options, kManyCuts);
  runner.draw(11);
  return runner;
}

TEST(Experts, AreBlocksOfGroupsWithEveryParameter) {
  const ModelConfig config = shallow("qwen3-30b-a3b");
  const CompiledModel model = compile(config);
  const UnitGraph& graph = model.graph;
  // The head has rows of its own; each layer has a router and 128 experts of three matrices, 13 in a group.
  const std::int64_t H = config.hidden, attention = H * 128 * (2 * 32 + 2 * 4) + 2 * 128, norms = 2 * H;
  EXPECT_EQ(graph.parameters, 2 * config.vocab * H + H + 2 * (attention + norms + 128 * (H + 3 * H * 768)));
  const auto is_of_experts = [](const auto& of) { return of.name.find("expert") != std::string::npos; };
  EXPECT_EQ(std::ranges::count_if(graph.blocks, is_of_experts), 2 * 10);
  EXPECT_EQ(std::ranges::count_if(graph.units, is_of_experts), 2);
  EXPECT_EQ(std::ranges::count_if(compile(config, ExpertsForm::groups).graph.units, is_of_experts), 2 * 10);
}

// A parameter that a token goes through costs two operations in the forward and twice that in the backward; a lookup costs none.
TEST(Experts, CostWhatATokensExpertsCost) {
  for (const char* name : {"mixtral-8x7b", "qwen3-30b-a3b", "olmoe-1b-7b"}) {
    const ModelConfig config = shallow(name);
    const CompiledModel model = compile(config);
    double flops = 0;
    for (const Unit& unit : model.graph.units)
      flops += unit.forward_work.gemm_flops + unit.backward_work.gemm_flops - unit.backward_work.repeated_flops;
    const auto parameters = static_cast<double>(active_parameter_count(config) - config.vocab * config.hidden);
    EXPECT_NEAR(flops / static_cast<double>(model.graph.rows), 6 * parameters, 0.002 * 6 * parameters) << name;
  }
}

// An expert's products cost as much as the few rows that come to it need, not a micro-batch's rows.
TEST(Experts, HaveTheirShareOfTheRows) {
  const CompiledModel model = compile(shallow("qwen3-30b-a3b"));  // 8 of 128 experts per row
  const auto experts =
      std::ranges::find_if(model.graph.units, [](const Unit& unit) { return unit.name.find("expert") != std::string::npos; });
  ASSERT_NE(experts, model.graph.units.end());
  const double share = static_cast<double>(model.graph.rows) / 16;
  EXPECT_EQ(experts->forward_work.gemm_rows, share);
  EXPECT_EQ(experts->backward_work.gemm_rows, share);
  MachineProfile machine;
  machine.gemm_bf16_flops = 1e12;
  machine.gemm_bf16_extra_rows = 32;
  machine.memory_bytes = 1e30;
  const double flops = experts->forward_work.gemm_flops;
  EXPECT_NEAR(seconds_of(machine, model.graph, experts->forward_work), flops / 1e12 * (1 + 32 / share), 1e-6 * flops / 1e12);
}

TEST(Experts, PiecesHoldAllRowsAndWasteFewerThanAStep) {
  for (std::int64_t rows = 1; rows <= 5000; ++rows) {
    std::int64_t done = 0, worked = 0;
    while (done < rows) {
      const std::int64_t piece = ops::piece_of(rows - done);
      ASSERT_NE(std::ranges::find(ops::kPieceRows, piece), ops::kPieceRows.end());
      done += std::min(piece, rows - done), worked += piece;
    }
    ASSERT_LT(worked - rows, ops::kPieceStep);
  }
}

TEST(Experts, FormsGiveTheSameBits) {
  for (const char* family : {"mixtral", "qwen2_moe", "qwen3_moe", "olmoe", "gpt_oss"}) {
    for (const DType dtype : {DType::float32, DType::bfloat16}) {
      const ModelConfig config = small_config(family);
      InCoreRunner layer = drawn(config, dtype, ExpertsForm::layer), groups = drawn(config, dtype, ExpertsForm::groups);
      ASSERT_LT(layer.graph().units.size(), groups.graph().units.size());
      const std::vector<std::int32_t> tokens = some_tokens(3 * kBatch * kSequence);  // three micro-batches
      for (const SavedValues saved : {SavedValues::kept, SavedValues::recomputed}) {
        EXPECT_EQ(std::bit_cast<std::uint64_t>(layer.backward(tokens, tokens, saved)),
                  std::bit_cast<std::uint64_t>(groups.backward(tokens, tokens, saved)));
        for (const auto& [name, gradient] : layer.gradients()) {
          const std::vector<float> other = groups.gradients().at(name);
          ASSERT_EQ(std::memcmp(gradient.data(), other.data(), 4 * other.size()), 0) << family << " " << name;
        }
      }
    }
  }
}

// Where every row goes to all experts, rounding cannot send one elsewhere: gradients in bf16 are those of fp32 within what the
// dense models of golden_test.cpp are allowed.
TEST(Experts, InBFloat16AreRoundedAsDenseModelsAre) {
  constexpr double epsilon = 0x1p-7;
  for (const char* family : {"mixtral", "qwen2_moe", "qwen3_moe", "olmoe", "gpt_oss"}) {
    ModelConfig config = small_config(family);
    config.experts_per_token = config.experts;
    InCoreRunner exact = drawn(config, DType::float32, ExpertsForm::layer),
                 rounded = drawn(config, DType::bfloat16, ExpertsForm::layer);
    const std::vector<std::int32_t> tokens = some_tokens(kBatch * kSequence);
    const double loss = exact.backward(tokens, tokens);
    EXPECT_NEAR(rounded.backward(tokens, tokens), loss, epsilon / 2 * loss);
    const Tensors expected = exact.gradients();
    for (const auto& [name, gradient] : rounded.gradients()) {
      double apart = 0, norm = 0;
      for (std::size_t i = 0; i < gradient.size(); ++i) {
        const double of = expected.at(name)[i];
        apart += (gradient[i] - of) * (gradient[i] - of), norm += of * of;
      }
      EXPECT_LT(std::sqrt(apart), 6 * epsilon * std::sqrt(norm)) << family << " " << name;
    }
  }
}

// Where all tokens are the same, so are all rows, and all go to the same experts; others have gradients of zero.
TEST(Experts, AllRowsMayComeToTheSameOnes) {
  ModelConfig config = small_config("mixtral");
  config.experts_per_token = 1;
  config.balance_coefficient = 0;
  InCoreRunner runner = drawn(config, DType::float32, ExpertsForm::layer);
  const std::vector<std::int32_t> tokens(static_cast<std::size_t>(kBatch * kSequence), 5);
  EXPECT_TRUE(std::isfinite(runner.backward(tokens, tokens)));
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    int met = 0;
    for (std::int64_t expert = 0; expert < config.experts; ++expert) {
      const auto gradient =
          runner.gradients().at(fmt::format("model.layers.{}.block_sparse_moe.experts.{}.w2.weight", layer, expert));
      EXPECT_TRUE(std::ranges::all_of(gradient, [](float g) { return std::isfinite(g); }));
      met += std::ranges::any_of(gradient, [](float g) { return g != 0; });
    }
    EXPECT_EQ(met, 1) << "layer " << layer;
  }
}

TEST(Experts, ARouterThatMeetsANaNNamesItsLayer) {
  ModelConfig config = small_config("mixtral");
  for (const std::int64_t layer : {0, 1}) {
    InCoreRunner runner = drawn(config, DType::bfloat16, ExpertsForm::layer);
    const std::vector<std::int32_t> tokens = some_tokens(kBatch * kSequence);
    runner.backward(tokens, tokens);
    EXPECT_EQ(runner.words().router_fault, 0);
    const std::string name = fmt::format("model.layers.{}.block_sparse_moe.gate.weight", layer);
    Tensors direction;
    direction[name] = std::vector<float>(static_cast<std::size_t>(config.experts * config.hidden), std::nanf(""));
    runner.move(direction, 1);
    EXPECT_TRUE(std::isnan(runner.backward(tokens, tokens)));
    EXPECT_EQ(runner.words().router_fault, layer + 1);
  }
}

}  // namespace
}  // namespace spillway::testing
