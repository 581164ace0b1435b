// Three tiers: wherever bytes rest and updates run, every operation finds the bytes that the last one wrote.
#include "memory/plan/chain.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "memory/passes/residency.h"
#include "memory/passes/validate.h"
#include "tests/memory/byte_order.h"
#include "tests/memory/compiled_plan.h"
#include "tests/memory/drawn_choices.h"
#include "tests/memory/every_choice.h"
#include "tests/memory/symbolic_run.h"
#include "tests/memory/toy_graph.h"

namespace spillway {
namespace {

constexpr ToyShape kSmall = {.layers = 3,
                             .layer_elements = 4096,
                             .vocabulary_elements = 4096,
                             .boundary_bytes = 4 * kKiB,
                             .saved_bytes = 8 * kKiB,
                             .logits_bytes = 8 * kKiB};

TEST(Chain, LinksAreCrossedOneByOne) {
  constexpr Chain chain = Chain::device_host_nvme;
  EXPECT_EQ(next_towards(chain, Tier::device, Tier::nvme), Tier::host);
  EXPECT_EQ(next_towards(chain, Tier::nvme, Tier::device), Tier::host);
  EXPECT_EQ(next_towards(chain, Tier::host, Tier::device), Tier::device);
  EXPECT_EQ(next_towards(Chain::device_nvme, Tier::device, Tier::nvme), Tier::nvme);
  EXPECT_EQ(links_between(chain, Tier::device, Tier::nvme), 2);
  EXPECT_EQ(links_between(Chain::device_nvme, Tier::device, Tier::nvme), 1);
  EXPECT_EQ(lane_between(Tier::host, Tier::device), Lane::upload);
  EXPECT_EQ(lane_between(Tier::device, Tier::host), Lane::download);
  EXPECT_EQ(lane_between(Tier::nvme, Tier::host), Lane::nvme_read);
  EXPECT_EQ(lane_between(Tier::device, Tier::nvme), Lane::nvme_write);
}

std::vector<std::vector<std::uint8_t>> state_after(const UnitGraph& graph, const Plan& plan, int steps) {
  SymbolicRun run(plan, graph);
  for (int step = 0; step < steps; ++step) run.step();
  run.flush();
  std::vector<std::vector<std::uint8_t>> arrays;
  for (int block = 0; block < std::ssize(graph.blocks); ++block) {
    for (const RestingArray& of : plan.blocks[static_cast<std::size_t>(block)].state) {
      const auto array = run.state(block, of);
      arrays.emplace_back(array.begin(), array.end());
    }
  }
  return arrays;
}

TEST(Chain, EveryOperationFindsWhatTheLastOneWrote) {
  By<Lane, int> moved;
  for (std::uint64_t seed = 0; seed < 600; ++seed) {
    ToyShape shape = kSmall;
    shape.tied = seed % 2 == 0;
    shape.fused = seed % 4 < 2;
    const UnitGraph graph = toy_graph(shape);
    const Choices choices = any_choices(graph, seed);
    SCOPED_TRACE(fmt::format("seed {}: {}", seed, name_of_case(choices, shape.tied, shape.fused)));
    const Plan plan = compiled(graph, choices), reference = compiled(graph, in_core(choices));
    ASSERT_NO_THROW(validate(plan, graph));
    ASSERT_EQ(state_after(graph, plan, 3), state_after(graph, reference, 3));
    for (const Op& op : plan.step.ops) ++moved[op.lane];
  }
  for (const Lane lane : {Lane::upload, Lane::download, Lane::nvme_read, Lane::nvme_write})
    EXPECT_GT(moved[lane], 4000) << name_of(lane);
}

// The same where NVMe is the device's neighbour, for every third of the combinations in every_choice.h.
TEST(Chain, AlsoWithoutAHost) {
  int plans = 0;
  for_every_choice(
      [&](const UnitGraph& large, const Choices& choices) {
        if (choices.ahead == 2 * kMiB || ++plans % 3 != 0) return;
        ToyShape shape = kSmall;
        shape.layers = 2;
        shape.tied = large.blocks.size() == 4;
        shape.fused = large.units.back().role == ForwardRole::merged_into_backward;
        const UnitGraph graph = toy_graph(shape);
        Choices small = choices;
        small.update_chunk = 1 << 20;
        const Plan plan = compiled(graph, small), reference = compiled(graph, in_core(small));
        ASSERT_EQ(state_after(graph, plan, 3), state_after(graph, reference, 3));
      },
      2);
  EXPECT_GT(plans, 200);
}

TEST(Chain, WaitsOrderEveryByte) {
  for (std::uint64_t seed = 1000; seed < 1060; ++seed) {
    ToyShape shape = kSmall;
    shape.layers = 2;
    shape.tied = seed % 2 == 0;
    const UnitGraph graph = toy_graph(shape);
    const Plan plan = compiled(graph, any_choices(graph, seed));
    const ByteOrder order(plan, plan.step, 2);
    const auto unordered = order.unordered();
    ASSERT_FALSE(unordered) << "seed " << seed << ": " << order.text(*unordered);
  }
}

// Bytes that rest on a tier never cross a link that does not lie between that tier and the tier of their use.
TEST(Chain, NothingCrossesMoreLinksThanItMust) {
  ToyShape shape = kSmall;
  shape.tied = false;
  const UnitGraph graph = toy_graph(shape);
  Choices choices = toy_choices(graph, Tier::host);
  choices.chain = Chain::device_host_nvme;
  choices.update_tier = Tier::host;
  choices.update = UpdateTime::in_next_forward;
  set_all(choices.units, &UnitPlace::spill, Tier::host);
  Bytes weights = 0, gradients = 0, uploaded = 0, downloaded = 0;
  for (const ParameterBlock& block : graph.blocks) weights += 2 * block.elements, gradients += 4 * block.elements;
  const Plan plan = compiled(graph, choices);
  for (const Op& op : plan.step.ops) {
    ASSERT_TRUE(op.lane != Lane::nvme_read && op.lane != Lane::nvme_write);
    if (op.block < 0) continue;
    if (op.lane == Lane::upload) uploaded += op.bytes;
    if (op.lane == Lane::download) downloaded += op.bytes;
  }
  EXPECT_EQ(downloaded, gradients);  // each once
  EXPECT_GE(uploaded, weights);
  EXPECT_LE(uploaded, 2 * weights);  // once for the forward, and once for the backward where they were not kept
  EXPECT_EQ(plan.peak[Tier::nvme], 0);
}

}  // namespace
}  // namespace spillway
