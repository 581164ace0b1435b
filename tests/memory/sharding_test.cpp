// Ranks are placements: the same schedule with parts of the state, and collectives where parts and wholes meet.
#include "memory/plan/sharding.h"

#include <gtest/gtest.h>

#include "memory/passes/validate.h"
#include "memory/search/planner.h"
#include "tests/memory/byte_order.h"
#include "tests/memory/compiled_plan.h"
#include "tests/memory/drawn_choices.h"
#include "tests/memory/symbolic_ranks.h"
#include "tests/memory/toy_graph.h"

namespace spillway {
namespace {

// Elements that enter a rank by collectives of blocks, as if no part of an array were its own.
struct Traffic {
  double gathered = 0, reduced = 0;
};
Traffic traffic_of(const Plan& plan) {
  const double others = (plan.choices.sharding.ranks - 1.0) / plan.choices.sharding.ranks;
  Traffic traffic;
  for (const Program* program : {&plan.step}) {
    for (const Op& op : program->ops) {
      if (op.block < 0) continue;
      if (op.kind == OpKind::gather) traffic.gathered += static_cast<double>(op.bytes) / 2 / others;
      if (op.kind == OpKind::reduce) traffic.reduced += static_cast<double>(op.bytes) / 4 / others;
    }
  }
  return traffic;
}

TEST(Sharding, MovesTwoParametersAStepAndThreeWhereWeightsAreSharded) {
  const UnitGraph graph = toy_graph({.layers = 10, .tied = false});
  const auto parameters = static_cast<double>(graph.parameters), vocabulary = 128.0 * 1024;
  for (const int micro_batches : {1, 4}) {
    for (const UpdateTime update : {UpdateTime::after, UpdateTime::in_next_forward}) {
      Choices choices = toy_choices(graph, Tier::device);
      choices.micro_batches = micro_batches;
      choices.update = update;
      set_order(choices, Order::vertical);
      choices.ahead = 0;
      choices.sharding = {.ranks = 4, .group = 4, .stage = 0};
      EXPECT_EQ(traffic_of(compiled(graph, choices)).reduced, 2 * parameters);  // everybody has the whole sum: two halves
      for (const int stage : {1, 2}) {
        choices.sharding.stage = stage;
        const Traffic traffic = traffic_of(compiled(graph, choices));
        EXPECT_EQ(traffic.reduced, parameters) << stage;
        EXPECT_EQ(traffic.gathered, parameters) << stage;
      }
      choices.sharding.stage = 3;
      const Traffic traffic = traffic_of(compiled(graph, choices));
      EXPECT_EQ(traffic.reduced, parameters);
      // Weights are gathered once for the forward and once for the backward, except those that the forward used last, which are
      // still there, and those of lookups, whose backward takes no weights.
      EXPECT_EQ(traffic.gathered, 2 * parameters - vocabulary - 2 * vocabulary);
    }
  }
}

TEST(Sharding, DividesWhatRests) {
  const UnitGraph graph = toy_graph({.layers = 10, .tied = false});
  const Bytes parameters = graph.parameters;
  const auto state = [&](int stage) {
    Choices choices = toy_choices(graph, Tier::device);
    choices.sharding = {.ranks = 8, .group = 8, .stage = stage};
    const Plan plan = compiled(graph, choices);
    Bytes bytes = 0;
    for (const Buffer& buffer : plan.resident) {
      if (buffer.category == Category::parameters || buffer.category == Category::optimizer) bytes += buffer.bytes;
    }
    return bytes;
  };
  EXPECT_EQ(state(0), 12 * parameters);
  EXPECT_EQ(state(1), 2 * parameters + 10 * parameters / 8);
  EXPECT_EQ(state(2), state(1));
  EXPECT_EQ(state(3), 12 * parameters / 8);
}

TEST(Sharding, EveryStageGivesAValidPlan) {
  for (const bool tied : {false, true}) {
    for (const bool fused : {false, true}) {
      const UnitGraph graph = toy_graph({.layers = 5, .tied = tied, .fused = fused});
      for (const int stage : {0, 1, 2, 3}) {
        for (const Order order : {Order::horizontal, Order::vertical}) {
          for (const UpdateTime update : {UpdateTime::after, UpdateTime::in_backward, UpdateTime::in_next_forward}) {
            for (const Tier tier : {Tier::device, Tier::nvme}) {
              for (const Bytes ahead : {0 * kKiB, 512 * kKiB}) {
                Choices choices = toy_choices(graph, tier);
                choices.sharding = {.ranks = 6, .group = ahead == 0 ? 6 : 3, .stage = stage};
                choices.update = update;
                choices.micro_batches = 2;
                set_order(choices, order);
                choices.ahead = ahead;
                choices.form = ahead == 0 ? StateForm::exact : StateForm::compact;
                choices.update_chunk = 16 * 1024;
                const Plan plan = compiled(graph, choices);
                EXPECT_NO_THROW(validate(plan, graph))
                    << tied << fused << stage << order_words(choices) << name_of(update) << name_of(tier) << ahead;
              }
            }
          }
        }
      }
    }
  }
}

TEST(Sharding, PartsCoverABlockOnce) {
  for (const std::int64_t elements : {2048, 4096, 10 * 2048, 64 * 1024, 5 * 2048}) {
    for (int group = 1; group <= 9; ++group) {
      const Sharding sharding{.ranks = 2 * group, .group = group, .stage = 3};
      std::int64_t end = 0;
      for (int rank = 0; rank < group; ++rank) {
        const Shard part = part_of(elements, sharding, rank);
        EXPECT_EQ(part.begin, end) << elements << " by " << group;
        EXPECT_EQ(part.begin % kBlockElements, 0);
        EXPECT_LE(part.elements, shard_elements(elements, sharding));
        EXPECT_EQ(part, part_of(elements, sharding, rank + group));
        end = part.end();
      }
      EXPECT_EQ(end, elements);
    }
  }
}

// The same arithmetic with nothing sharded, everything on the device, and updates as soon as the norm is known.
Choices plain(const Choices& choices) {
  Choices same = in_core(choices);
  same.sharding.stage = 0;
  if (defers_all(same)) same.update = UpdateTime::after;
  set_all(same.blocks, &BlockPlace::deferred, Deferred::no);
  return same;
}

std::vector<std::vector<std::uint8_t>> state_after(const UnitGraph& graph, const Plan& plan, int steps) {
  SymbolicRanks run(plan, graph);
  for (int step = 0; step < steps; ++step) run.step();
  run.flush();
  return run.state();
}

Sharding any_sharding(std::uint64_t seed) {
  Draw draw(seed + 1);
  const int ranks = 1 + draw.up_to(5), stage = draw.any(0, 1, 2, 3);
  int group = draw.any(ranks, 2, 4);
  if (ranks % group != 0) group = ranks;
  return {.ranks = ranks, .group = group, .stage = stage};
}

TEST(Sharding, LeavesTheStateThatWholeRanksLeave) {
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    const ToyShape shape{.layers = 3,
                         .frozen = seed % 5 == 0 ? 1 : 0,
                         .tied = seed % 2 == 0,
                         .fused = seed % 4 < 2,
                         .layer_elements = seed % 3 == 0 ? 10'240 : 4096,  // of 4 ranks, the last has no part of 10,240
                         .vocabulary_elements = 6144,
                         .boundary_bytes = 4 * kKiB,
                         .saved_bytes = 8 * kKiB,
                         .logits_bytes = 8 * kKiB};
    const UnitGraph graph = toy_graph(shape);
    Choices choices = any_choices(graph, seed);
    choices.sharding = any_sharding(seed);
    choices.update_chunk = seed % 2 == 0 ? 2048 : 1 << 20;
    SCOPED_TRACE(fmt::format("seed {}: ranks {} group {} stage {} {}", seed, choices.sharding.ranks, choices.sharding.group,
                             choices.sharding.stage, name_of_case(choices, shape.tied, shape.fused)));
    const Plan plan = compiled(graph, choices), reference = compiled(graph, plain(choices));
    ASSERT_NO_THROW(validate(plan, graph));
    const auto left = state_after(graph, plan, 3);
    ASSERT_FALSE(left.empty());
    ASSERT_EQ(left, state_after(graph, reference, 3));
  }
}

TEST(Sharding, EveryCollectiveCounts) {
  const UnitGraph graph = toy_graph({.layers = 2, .layer_elements = 4096, .vocabulary_elements = 4096});
  Choices choices = toy_choices(graph, Tier::device);
  for (const int stage : {0, 1, 3}) {
    choices.sharding = {.ranks = 4, .group = 2, .stage = stage};
    Plan plan = compiled(graph, choices);
    const auto expected = state_after(graph, plan, 2);
    ASSERT_FALSE(expected.empty());
    int left_out = 0;
    for (Op& op : plan.step.ops) {
      if (op.lane != Lane::network) continue;
      const TurnSet when = std::exchange(op.when, TurnSet{0});
      EXPECT_NE(state_after(graph, plan, 2), expected) << stage << " " << name_of(op);
      op.when = when;
      ++left_out;
    }
    EXPECT_GT(left_out, 4);
  }
}

TEST(Sharding, GathersWhatUpdatesLeave) {
  const UnitGraph graph = toy_graph({.layers = 5});
  for (const Bytes ahead : {0 * kKiB, 512 * kKiB}) {
    Choices choices = toy_choices(graph, Tier::nvme);
    choices.sharding = {.ranks = 4, .group = 4, .stage = 3};
    choices.update = UpdateTime::in_next_forward;
    choices.ahead = ahead;
    const Plan plan = compiled(graph, choices);
    std::vector<int> gathered(graph.blocks.size());
    int updates = 0;
    for (const Op& op : plan.step.ops) {  // in the order of their lanes
      if (op.kind == OpKind::gather && op.block >= 0) ++gathered[static_cast<std::size_t>(op.block)];
      if (op.kind != OpKind::update) continue;
      EXPECT_EQ(gathered[static_cast<std::size_t>(op.block)], 0) << ahead << " " << graph.blocks[op.block].name;
      ++updates;
    }
    EXPECT_GE(updates, static_cast<int>(graph.blocks.size()));
  }
}

TEST(Sharding, LetsTheSearchFitWhatOneRankCannot) {
  const UnitGraph tiled = toy_graph({.layers = 12}), fused = toy_graph({.layers = 12, .fused = true});
  MachineProfile machine;
  machine.gemm_bf16_flops = machine.gemm_fp32_flops = machine.attention_bf16_flops = machine.attention_fp32_flops = 700e9;
  machine.memory_bytes = machine.update_bytes = machine.network_bytes = 30e9;
  PlanRequest request{.budgets = {{Tier::device, 10 * kMiB}}};
  EXPECT_FALSE(make_plan({&tiled, &fused}, machine, request).plan);
  request.sharding = {.ranks = 8, .group = 8, .stage = 3};
  const PlanOutcome outcome = make_plan({&tiled, &fused}, machine, request);
  ASSERT_TRUE(outcome.plan) << outcome.needed;
  validate(*outcome.plan, graph_of({&tiled, &fused}, outcome.plan->choices));
  EXPECT_GT(outcome.prediction.busy_s[Lane::network], 0);
}

}  // namespace
}  // namespace spillway
