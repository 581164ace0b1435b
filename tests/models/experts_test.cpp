#include <gtest/gtest.h>

#include <algorithm>

#include "memory/base/error.h"
#include "memory/plan/machine.h"
#include "models/build.h"
#include "models/catalogue/catalogue.h"
#include "tests/models/counted.h"

namespace spillway {
namespace {

CompiledModel compile(const ModelConfig& config, BuildPurpose purpose) {
  return build_model(config,
                     {.dtype = DType::bfloat16, .micro_batch = 1, .sequence = 2048, .head = HeadMode::fused, .purpose = purpose});
}

ModelConfig shallow(std::string_view name) {
  ModelConfig config = catalogue_config(name);
  config.layers = 2;
  config.windows.resize(2);
  return config;
}

TEST(Experts, AreUnitsOfTheirOwnWithEveryParameter) {
  const ModelConfig config = shallow("qwen3-30b-a3b");
  const UnitGraph graph = compile(config, BuildPurpose::planning).graph;
  // The head has rows of its own; each layer has a router and 128 experts of three matrices.
  const std::int64_t H = config.hidden, attention = H * 128 * (2 * 32 + 2 * 4) + 2 * 128, norms = 2 * H;
  EXPECT_EQ(graph.parameters, 2 * config.vocab * H + H + 2 * (attention + norms + 128 * (H + 3 * H * 768)));
  EXPECT_EQ(std::count_if(graph.units.begin(), graph.units.end(),
                          [](const Unit& unit) { return unit.name.find("expert") != std::string::npos; }),
            2 * 128);
}

// A parameter that a token goes through costs two operations in the forward and twice that in the backward; a lookup costs none.
TEST(Experts, CostWhatATokensExpertsCost) {
  for (const char* name : {"mixtral-8x7b", "qwen3-30b-a3b"}) {
    const ModelConfig config = shallow(name);
    const UnitGraph graph = compile(config, BuildPurpose::planning).graph;
    double flops = 0;
    for (const Unit& unit : graph.units)
      flops += unit.forward_work.gemm_flops + unit.backward_work.gemm_flops - unit.backward_work.repeated_flops;
    const auto parameters = static_cast<double>(active_parameter_count(config) - config.vocab * config.hidden);
    EXPECT_NEAR(flops / static_cast<double>(graph.rows), 6 * parameters, 0.001 * 6 * parameters) << name;
  }
}

// An expert's products cost as much as the few rows that come to it need, not a micro-batch's rows.
TEST(Experts, HaveTheirShareOfTheRows) {
  const UnitGraph graph = compile(shallow("qwen3-30b-a3b"), BuildPurpose::planning).graph;  // 8 of 128 experts per row
  const auto expert = std::find_if(graph.units.begin(), graph.units.end(),
                                   [](const Unit& unit) { return unit.name.find("expert") != std::string::npos; });
  ASSERT_NE(expert, graph.units.end());
  EXPECT_EQ(expert->forward_work.gemm_rows, static_cast<double>(graph.rows) / 16);
  EXPECT_EQ(expert->backward_work.gemm_rows, static_cast<double>(graph.rows) / 16);
  MachineProfile machine;
  machine.gemm_bf16_flops = 1e12;
  machine.gemm_bf16_extra_rows = 32;
  machine.memory_bytes = 1e30;
  const double flops = expert->forward_work.gemm_flops;
  EXPECT_NEAR(seconds_of(machine, graph, expert->forward_work), flops / 1e12 * (1 + 32 * 16 / static_cast<double>(graph.rows)),
              1e-6 * flops / 1e12);
}

TEST(Experts, DoNotRunYet) { EXPECT_THROW(compile(shallow("mixtral-8x7b"), BuildPurpose::running), InputError); }

}  // namespace
}  // namespace spillway
