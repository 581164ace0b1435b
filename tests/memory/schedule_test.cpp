// Every combination of choices gives a program whose buffers are disjoint while they live and whose waits cover every conflict.
#include "memory/passes/schedule.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "memory/base/error.h"
#include "memory/passes/validate.h"
#include "tests/memory/compiled_plan.h"
#include "tests/memory/every_choice.h"
#include "tests/memory/toy_graph.h"

namespace spillway {
namespace {

TEST(Schedule, EveryCombinationIsValid) {
  int plans = 0;
  for_every_choice([&](const UnitGraph& graph, const Choices& choices) {
    const Plan plan = compiled(graph, choices);
    ASSERT_NO_THROW(validate(plan, graph));
    ++plans;
  });
  EXPECT_GT(plans, 400);
}

TEST(Schedule, TheOrderOfArithmeticIsThatOfTheInCorePlan) {
  // The operations, their micro-batches and their order must not depend on where bytes rest or when they move.
  const auto arithmetic = [](const Plan& plan) {
    std::vector<std::string> steps;
    for (const Op& op : plan.step.ops) {
      if (op.lane == Lane::compute) steps.push_back(fmt::format("{} {} {}", name_of(op), op.unit, op.strip.first));
    }
    return steps;
  };
  for_every_choice([&](const UnitGraph& graph, const Choices& choices) {
    Choices in_core = toy_choices(graph, Tier::device);
    in_core.micro_batches = choices.micro_batches;
    set_group(in_core, choices.group);
    ASSERT_EQ(arithmetic(compiled(graph, choices)), arithmetic(compiled(graph, in_core)));
  });
}

TEST(Schedule, EachBlockIsUpdatedOnceAndCompletely) {
  for_every_choice([&](const UnitGraph& graph, const Choices& choices) {
    const Plan plan = compiled(graph, choices);
    std::vector<std::int64_t> next(graph.blocks.size(), 0);
    for (const Op& op : plan.step.ops) {
      if (op.kind != OpKind::update) continue;
      ASSERT_EQ(op.element_begin, next[op.block]);
      next[op.block] = op.element_end;
    }
    for (std::size_t block = 0; block < next.size(); ++block) ASSERT_EQ(next[block], graph.blocks[block].elements);
  });
}

// The sum of a block's squares has one writer, which comes before the norm. The open nodes that go from one update of a block to
// the next are touched by that block's updates alone until its sum is there. Updates read the gradient of their own elements
// alone.
TEST(Schedule, SquaresAreAddedUpInWordsOfThePlan) {
  std::size_t in_parts = 0;
  for_every_choice([&](const UnitGraph& graph, const Choices& choices) {
    const Plan plan = compiled(graph, choices);
    const std::vector<std::int64_t> words = norm_words(graph, choices);
    ASSERT_EQ(words.back(), std::ssize(graph.blocks));
    ASSERT_EQ(plan.resident[plan.norm_buffer].bytes,
              round_up((words.back() + kSquareNodesFromBegin) * static_cast<Bytes>(sizeof(double)), kExtentAlignment));
    std::vector<int> writers(graph.blocks.size());
    int open_block = -1;
    bool has_norm = false;
    for (const Op& op : plan.step.ops) {
      const bool updates = op.kind == OpKind::update;
      bool touches_open = false, writes_own = false;
      for (const Operand& operand : op.operands) {
        if (updates && operand.role == Role::waiting && operand.buffer >= 0) {
          const Bytes each = gradient_bytes_per_element(choices.form);
          ASSERT_EQ(operand.bytes, (op.element_end - op.element_begin) * each);
        }
        if (operand.buffer != plan.norm_buffer) continue;
        const auto first = operand.begin / static_cast<Bytes>(sizeof(double));
        if (op.kind == OpKind::norm) {
          has_norm = true;
          ASSERT_EQ(operand.bytes, words.back() * static_cast<Bytes>(sizeof(double)));
        } else if (first == words.back()) {
          touches_open = true;
        } else {
          ASSERT_FALSE(has_norm);
          ++writers[static_cast<std::size_t>(first)];
          writes_own |= first == op.block;
        }
      }
      if (!updates || op.when == kWaitingUpdates || !squares_with_update(choices, op.block)) {
        ASSERT_FALSE(touches_open);
        continue;
      }
      const std::int64_t elements = graph.blocks[op.block].elements;
      ASSERT_EQ(touches_open, op.element_end - op.element_begin < elements);
      ASSERT_EQ(writes_own, op.element_end == elements);
      ASSERT_EQ(op.element_begin > 0 ? op.block : -1, open_block);
      open_block = writes_own ? -1 : op.block;
      in_parts += touches_open;
    }
    ASSERT_EQ(writers, std::vector<int>(graph.blocks.size(), 1));
    ASSERT_TRUE(has_norm);
  });
  EXPECT_GT(in_parts, 0);
}

// A block that is not trained: read by both passes, never written; it has no optimizer state, no gradient and no second slot.
TEST(Schedule, AFrozenBlockHasItsWeightAlone) {
  const UnitGraph graph = toy_graph({.layers = 4, .frozen = 3});
  for (const Tier tier : {Tier::device, Tier::nvme}) {
    for (const UpdateTime update : {UpdateTime::after, UpdateTime::in_backward, UpdateTime::in_next_forward}) {
      for (const int group : {1, 4}) {
        Choices choices = toy_choices(graph, tier);
        choices.update = update;
        choices.clip = update != UpdateTime::in_backward;
        choices.slots = 2;
        choices.durable_every = 1;
        choices.micro_batches = 4;
        set_group(choices, group);
        const Plan plan = compiled(graph, choices);
        ASSERT_NO_THROW(validate(plan, graph));
        EXPECT_EQ(norm_words(graph, choices).back(), std::ssize(graph.blocks) - 3);
        int frozen = 0;
        for (int block = 0; block < std::ssize(graph.blocks); ++block) {
          if (!graph.blocks[block].frozen) continue;
          ++frozen;
          const BlockBuffers& buffers = plan.blocks[block];
          ASSERT_EQ(buffers.state.size(), 1U);
          EXPECT_EQ(buffers.state.front().kind, StateKind::weight);
          EXPECT_EQ(plan.resident[buffers.state.front().buffer].slots, 1);
          EXPECT_EQ(buffers.waiting_gradient, -1);
          EXPECT_TRUE(buffers.sums.empty());
          for (const Op& op : plan.step.ops) {
            EXPECT_FALSE(op.block == block && (op.kind == OpKind::update || op.kind == OpKind::gradient_finish));
            for (const Operand& operand : op.operands)
              EXPECT_TRUE(operand.buffer != buffers.state.front().buffer || operand.access == Access::read);
          }
        }
        EXPECT_EQ(frozen, 3);
      }
    }
  }
}

// Adapters on a frozen base: no operation writes the base, none commits it, no backward runs below the lowest adapter, and in
// vertical order the base is read as often for 16 micro-batches as for one.
TEST(Schedule, AFrozenBaseIsOnlyRead) {
  const UnitGraph graph = toy_graph({.layers = 5, .adapters_from = 2});
  const int lowest = 2 + 2;  // unit of the lowest adapter, behind the embedding's tiles
  for (const Chain chain : {Chain::device_nvme, Chain::device_host_nvme}) {
    for (const Tier tier : tiers_of(chain)) {
      for (const UpdateTime update : {UpdateTime::after, UpdateTime::in_backward, UpdateTime::in_next_forward}) {
        std::map<int, Bytes> read;  // bytes of the base, by micro-batches, in vertical order
        for (const auto& [micro_batches, group] : {std::pair(16, 1), std::pair(16, 16), std::pair(1, 1)}) {
          Choices choices = toy_choices(graph, tier);
          choices.chain = chain;
          choices.update = update;
          choices.clip = update != UpdateTime::in_backward;
          choices.slots = 2;
          choices.durable_every = 1;
          choices.micro_batches = micro_batches;
          set_group(choices, group);
          const Plan plan = compiled(graph, choices);
          ASSERT_NO_THROW(validate(plan, graph));
          std::set<int> base;  // buffers
          for (std::size_t block = 0; block < graph.blocks.size(); ++block) {
            if (graph.blocks[block].frozen) base.insert(plan.blocks[block].weight().buffer);
          }
          Bytes bytes = 0;
          for (const Op& op : plan.step.ops) {
            EXPECT_TRUE(op.kind != OpKind::backward || op.unit >= lowest);
            for (const Operand& operand : op.operands) {
              if (!base.contains(operand.buffer)) continue;
              EXPECT_EQ(operand.access, Access::read);
              EXPECT_NE(op.kind, OpKind::commit);
              if (op.kind == OpKind::move) bytes += operand.bytes * times_in(op.when, turns_of(choices));
            }
          }
          if (group == micro_batches) read[micro_batches] = bytes;
        }
        EXPECT_EQ(read.at(16), read.at(1));
        EXPECT_EQ(read.at(1) > 0, tier != Tier::device);
      }
    }
  }
}

TEST(Schedule, TrafficOfStateIsWhatTheFormSays) {
  // In the backward the weights are at hand: an update reads low, m and v, and writes all four arrays.
  const UnitGraph graph = toy_graph({.tied = false, .fused = true});
  Choices choices = toy_choices(graph, Tier::nvme);
  choices.update = UpdateTime::in_backward;
  choices.clip = false;
  const Plan plan = compiled(graph, choices);
  std::int64_t elements = 0;
  for (const ParameterBlock& block : graph.blocks) elements += block.elements;
  Bytes read = 0, written = 0;
  for (const Op& op : plan.step.ops) {
    if (op.lane == Lane::nvme_read) read += op.bytes;
    if (op.lane == Lane::nvme_write) written += op.bytes;
  }
  EXPECT_EQ(written, 12 * elements);
  EXPECT_GE(read, (2 + 10) * elements);      // the weights at least once
  EXPECT_LE(read, (2 + 2 + 10) * elements);  // and at most twice
}

TEST(Schedule, OffloadNeedsLessMemory) {
  const UnitGraph graph = toy_graph({.layers = 24});
  const auto peak = [&](Tier tier, Saved saved) {
    Choices choices = toy_choices(graph, tier);
    set_all(choices.units, &UnitPlace::saved, saved);
    choices.ahead = 256 * kKiB;
    choices.update_chunk = 16 * 1024;
    return compiled(graph, choices).peak[Tier::device];
  };
  EXPECT_LT(peak(Tier::nvme, Saved::keep), peak(Tier::device, Saved::keep) / 2);
  EXPECT_LT(peak(Tier::nvme, Saved::recompute), peak(Tier::nvme, Saved::keep) / 2);
}

// Logits that a head makes in pieces and does not keep need no more room than a piece, and no pass of their own; logits that are
// kept are there for the backward.
TEST(Schedule, LogitsAreKeptOrMadeAgainByTheBackwardItself) {
  const UnitGraph graph = toy_graph({});
  const int head = static_cast<int>(graph.units.size()) - 1;
  const Unit& unit = graph.units[head];
  for (const Saved saved : {Saved::keep, Saved::recompute, Saved::spill}) {
    Choices choices = toy_choices(graph, Tier::nvme);
    choices.ahead = 0;
    set_all(choices.units, &UnitPlace::saved, saved);
    const Plan plan = compiled(graph, choices);
    const bool again = saved == Saved::recompute;
    int passes = 0;
    Bytes moved = 0;
    for (const Op& op : plan.step.ops) {
      if (op.unit != head) continue;
      for (const Operand& operand : op.operands) {
        if (operand.role == Role::from && operand.bytes == graph.values[unit.saved.front()].bytes) moved += operand.bytes;
      }
      if (op.kind != OpKind::forward && op.kind != OpKind::backward) continue;
      ++passes;
      EXPECT_EQ(op.operands[1].role, Role::value);
      EXPECT_EQ(op.operands[1].bytes, again ? unit.saved_piece : graph.values[unit.saved.front()].bytes);
      const double flops = op.kind == OpKind::forward ? unit.forward_work.gemm_flops : unit.backward_work.gemm_flops;
      EXPECT_EQ(op.work.gemm_flops, flops + (again && op.kind == OpKind::backward ? unit.forward_work.gemm_flops : 0));
    }
    EXPECT_EQ(passes, 2);
    EXPECT_EQ(moved, saved == Saved::spill ? 2 * graph.values[unit.saved.front()].bytes : 0);  // written once and read once
  }
}

TEST(Validate, RefusesWhatTheExecutorCouldNotRun) {
  const UnitGraph graph = toy_graph({});
  Choices choices = toy_choices(graph, Tier::nvme);
  const Plan good = compiled(graph, choices);
  const auto refused = [&](auto&& spoil) {
    Plan bad = good;
    spoil(bad);
    EXPECT_THROW(validate(bad, graph), Error);
  };
  refused([](Plan& plan) { plan.resident.front().offset = plan.peak[Tier::device]; });
  refused([](Plan& plan) { plan.step.buffers.front().offset += 64; });
  refused([](Plan& plan) { plan.step.ops.back().waits.push_back({static_cast<int>(plan.step.ops.size()) - 1, 0}); });
  refused([](Plan& plan) {
    for (Op& op : plan.step.ops) {
      if (!op.operands.empty() && op.operands.front().buffer >= 0) op.operands.front().bytes += kGiB;
    }
  });
  // No wait is idle: without any one of them two operations have no order.
  for (std::size_t op = 0; op < good.step.ops.size(); ++op) {
    for (std::size_t wait = 0; wait < good.step.ops[op].waits.size(); ++wait) {
      Plan bad = good;
      bad.step.ops[op].waits.erase(bad.step.ops[op].waits.begin() + static_cast<std::ptrdiff_t>(wait));
      EXPECT_THROW(validate(bad, graph), Error) << op << " " << wait;
    }
  }
}

// The evaluation's program obeys the same rules as any other.
TEST(Validate, RefusesTheSameOfAnEvaluation) {
  const UnitGraph graph = toy_graph({});
  Choices choices = toy_choices(graph, Tier::nvme);
  choices.update = UpdateTime::in_next_forward;
  Plan good = build_schedule(graph, choices);
  good.evaluate = build_evaluation(graph, good);
  pack(good);
  derive_waits(good);
  ASSERT_NO_THROW(validate(good, graph));
  const auto refused = [&](auto&& spoil) {
    Plan bad = good;
    ASSERT_FALSE(bad.evaluate.ops.empty());
    spoil(bad, bad.evaluate);
    EXPECT_THROW(validate(bad, graph), Error);
  };
  refused([](Plan&, Program& bad) { bad.ops.back().block = 1000; });
  refused([](Plan& plan, Program& bad) { bad.ops.back().strip.first = plan.choices.group; });
  refused([](Plan&, Program& bad) { bad.ops.back().waits.push_back({static_cast<int>(bad.ops.size()) - 1, 0}); });
  refused([](Plan&, Program& bad) { bad.ops.front().operands.front().bytes += kGiB; });
  refused([](Plan&, Program& bad) { bad.buffers.front().offset += 64; });
  refused([](Plan& plan, Program& bad) { bad.buffers.front().offset = plan.peak[Tier::device]; });
  refused([](Plan&, Program& bad) {
    const auto moved = std::find_if(bad.buffers.begin(), bad.buffers.end(), [&](const Buffer& buffer) {
      return &buffer != &bad.buffers.front() && buffer.tier == bad.buffers.front().tier && buffer.bytes > 0 &&
             buffer.first_op <= bad.buffers.front().last_op && buffer.last_op >= bad.buffers.front().first_op;
    });
    ASSERT_NE(moved, bad.buffers.end());
    moved->offset = bad.buffers.front().offset;
  });
}

}  // namespace
}  // namespace spillway
