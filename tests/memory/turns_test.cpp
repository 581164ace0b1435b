// A step in turns: which operations are in which turns; and neither a program nor the prediction of its turns depends on how many
// there are between the first and the last.
#include <gtest/gtest.h>

#include "memory/passes/validate.h"
#include "memory/search/simulate.h"
#include "tests/memory/compiled_plan.h"
#include "tests/memory/toy_graph.h"

namespace spillway {
namespace {

TEST(Turns, AreFirstMiddleOrLast) {
  for (const int turns : {1, 2, 3, 7}) {
    int middle = 0, waiting = 0;
    for (int turn = 0; turn < turns; ++turn) {
      const TurnSet set = turn_set(turn, turns, true), without = turn_set(turn, turns, false);
      EXPECT_NE(set & kEveryTurn, 0);
      EXPECT_EQ((set & kFirstTurn) != 0, turn == 0);
      EXPECT_EQ((set & kLastTurn) != 0, turn + 1 == turns);
      EXPECT_EQ(without & kWaitingTurn, 0);
      EXPECT_EQ(without | kWaitingTurn, set | kWaitingTurn);
      middle += (set & kMiddleTurns) != 0 ? 1 : 0;
      waiting += (set & kWaitingTurn) != 0 ? 1 : 0;
    }
    EXPECT_EQ(middle, std::max(0, turns - 2));
    EXPECT_EQ(waiting, 1);
    EXPECT_EQ(times_in(kEveryTurn, turns), turns);
    EXPECT_EQ(times_in(kLastTurn, turns), 1);
    EXPECT_EQ(times_in(kWaitingTurn, turns), 1);
  }
  EXPECT_EQ(times_in(kAfterFirst, 7), 6);
  EXPECT_EQ(times_in(kEveryTurn & ~kLastTurn, 7), 6);
  EXPECT_EQ(shown_turn(0, 9), 0);
  EXPECT_EQ(shown_turn(1, 9), 2);
  EXPECT_EQ(shown_turn(2, 9), 8);
}

TEST(Turns, GroupsAreCutIntoStrips) {
  Choices choices;
  choices.micro_batches = 96;
  set_group(choices, 48);
  EXPECT_EQ(turns_of(choices), 2);
  EXPECT_EQ(choices.strip, 6);
  EXPECT_EQ(strips_of(choices), 8);
  set_group(choices, 32, 5);
  EXPECT_EQ(choices.strip, 7);
  EXPECT_EQ(strips_of(choices), 5);  // the last has four
  set_order(choices, Order::horizontal);
  EXPECT_EQ(order_words(choices), "horizontal");
  set_order(choices, Order::vertical);
  EXPECT_EQ(order_words(choices), "vertical");
  set_group(choices, 8);
  EXPECT_EQ(order_words(choices), "groups of 8");
}

Plan plan_of(const UnitGraph& graph, int micro_batches, int group, UpdateTime update, Tier tier) {
  Choices choices = toy_choices(graph, tier);
  choices.micro_batches = micro_batches;
  set_group(choices, group);
  choices.update = update;
  choices.clip = update != UpdateTime::in_backward;
  return compiled(graph, choices);
}

constexpr UpdateTime kUpdates[] = {UpdateTime::after, UpdateTime::in_backward, UpdateTime::in_next_forward};

TEST(Turns, AProgramDoesNotGrowWithMicroBatches) {
  const UnitGraph graph = toy_graph({.layers = 4, .tied = true});
  for (const UpdateTime update : kUpdates) {
    for (const Tier tier : {Tier::device, Tier::nvme}) {
      const std::size_t strips = plan_of(graph, 8, 8, update, tier).step.ops.size(),
                        one = plan_of(graph, 2, 1, update, tier).step.ops.size();
      EXPECT_EQ(plan_of(graph, 8 * 125, 8 * 125, update, tier).step.ops.size(), strips);
      EXPECT_EQ(plan_of(graph, 8 * 125, 8, update, tier).step.ops.size(), plan_of(graph, 16, 8, update, tier).step.ops.size());
      EXPECT_EQ(plan_of(graph, 1 << 20, 1, update, tier).step.ops.size(), one);
    }
  }
}

// The turns in which a gradient sum is fetched, and those in which it is saved.
TEST(Turns, SumsAreTakenAfterTheFirstAndKeptUntilTheLast) {
  const UnitGraph graph = toy_graph({.layers = 3, .tied = false});
  for (const UpdateTime update : kUpdates) {
    const Plan plan = plan_of(graph, 6, 2, update, Tier::nvme);
    ASSERT_NO_THROW(validate(plan, graph));
    int fetched = 0, kept = 0;
    for (const Op& op : plan.step.ops) {
      if (op.kind == OpKind::update || op.kind == OpKind::gradient_finish || op.kind == OpKind::norm || op.kind == OpKind::loss) {
        const bool waited = op.kind == OpKind::update && update == UpdateTime::in_next_forward;
        EXPECT_EQ(op.when, waited ? kWaitingUpdates : kLastTurn) << name_of(op);
      }
      for (const Operand& operand : op.operands) {
        if (operand.buffer < 0 || operand.role != (op.lane == Lane::nvme_read ? Role::from : Role::to)) continue;
        const Buffer& home = buffer_of(plan, plan.step, operand.buffer);
        if (home.category != Category::gradients) continue;
        // A sum that waited, which its update takes right before the backward, may come in the same read.
        if (op.lane == Lane::nvme_read && (op.when | kWaitingUpdates) == (kAfterFirst | kWaitingUpdates)) ++fetched;
        if (op.lane == Lane::nvme_write) kept += (op.when & kMiddleTurns) != 0 ? 1 : 0;
      }
    }
    EXPECT_EQ(fetched, std::ssize(graph.blocks)) << name_of(update);
    EXPECT_EQ(kept, std::ssize(graph.blocks)) << name_of(update);
  }
}

// The simulator goes through two turns between the first and the last: each further turn takes as long as another.
TEST(Turns, EachFurtherOneTakesAsLong) {
  MachineProfile machine;
  machine.gemm_bf16_flops = machine.gemm_fp32_flops = machine.attention_bf16_flops = machine.attention_fp32_flops = 4e11;
  machine.memory_bytes = 2e10, machine.update_bytes = 1e10;
  machine.nvme_read_bytes = machine.nvme_mixed_read_bytes = 2e9;
  machine.nvme_write_bytes = machine.nvme_mixed_write_bytes = 1e9;
  const UnitGraph graph = toy_graph({.layers = 6});
  for (const UpdateTime update : kUpdates) {
    for (const Tier tier : {Tier::device, Tier::nvme}) {
      const auto predicted = [&](int turns) { return predict(plan_of(graph, 2 * turns, 2, update, tier), graph, machine); };
      const Prediction three = predicted(3), four = predicted(4), five = predicted(5), many = predicted(100);
      const double each_s = five.step_s - four.step_s;
      EXPECT_GT(each_s, 0);
      EXPECT_NEAR(four.step_s - three.step_s, each_s, 0.02 * each_s);  // the simulator goes through all of these turns
      EXPECT_NEAR(many.step_s, four.step_s + 96 * each_s, 1e-6 * many.step_s);
      EXPECT_EQ(many.timeline.spans.size(), 3 * plan_of(graph, 200, 2, update, tier).step.ops.size());
      const auto last = std::ranges::max_element(many.timeline.spans, {}, &Span::end_s);
      EXPECT_GT(last->end_s, 0.95 * many.step_s);
      EXPECT_LE(many.bound.of_step().seconds, many.step_s * (1 + 1e-6));
      for (const auto& [name, lane] : Names<Lane>::all) EXPECT_LE(many.busy_s[lane], many.step_s * (1 + 1e-6)) << name;
    }
  }
}

}  // namespace
}  // namespace spillway
