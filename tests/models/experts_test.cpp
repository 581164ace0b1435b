#include <gtest/gtest.h>

#include <algorithm>

#include "memory/error.h"
#include "models/build.h"
#include "models/catalogue/catalogue.h"

namespace spillway {
namespace {

CompiledModel compile(const ModelConfig& config, BuildPurpose purpose) {
  const ThreadPool pool(1);
  ops::MatmulEngine engine(1);
  return build_model(config, {.dtype = DType::bfloat16, .micro_batch = 1, .sequence = 2048, .head = HeadMode::fused, .pool = pool,
                              .engine = engine, .purpose = purpose});
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
  EXPECT_EQ(graph.parameters, parameter_count(config));
  EXPECT_EQ(std::count_if(graph.units.begin(), graph.units.end(), [](const Unit& unit) { return unit.name.find("expert") != std::string::npos; }), 2 * 128);
}

// Two operations a parameter that a token goes through, forward, and twice that backward; a lookup costs none.
TEST(Experts, CostWhatATokensExpertsCost) {
  for (const char* name : {"mixtral-8x7b", "qwen3-30b-a3b"}) {
    const ModelConfig config = shallow(name);
    const UnitGraph graph = compile(config, BuildPurpose::planning).graph;
    double flops = 0;
    for (const Unit& unit : graph.units) flops += unit.forward_work.gemm_flops + unit.backward_work.gemm_flops - unit.backward_work.repeated_flops;
    const auto parameters = static_cast<double>(active_parameter_count(config) - config.vocab * config.hidden);
    EXPECT_NEAR(flops / static_cast<double>(graph.rows), 6 * parameters, 0.001 * 6 * parameters) << name;
  }
}

TEST(Experts, DoNotRunYet) {
  EXPECT_THROW(compile(shallow("mixtral-8x7b"), BuildPurpose::running), InputError);
}

}  // namespace
}  // namespace spillway
