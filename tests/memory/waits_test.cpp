// Waits order all operations that must be in order, as byte_order.h finds byte by byte, in every program of a plan; and no wait
// is idle.
#include "memory/passes/waits.h"

#include <gtest/gtest.h>

#include "memory/base/error.h"
#include "memory/passes/validate.h"
#include "memory/search/planner.h"
#include "tests/memory/byte_order.h"
#include "tests/memory/compiled_plan.h"
#include "tests/memory/drawn_choices.h"
#include "tests/memory/every_choice.h"
#include "tests/memory/toy_graph.h"

namespace spillway {
namespace {

constexpr int kLayers = 2;

// A step's program follows itself; the others run alone.
struct Part {
  std::string_view name;
  Program Plan::* program;
  int rounds;
};
constexpr Part kParts[] = {{"step", &Plan::step, 2}, {"evaluate", &Plan::evaluate, 1}};

// A plan with a program for evaluation, as the planner makes it.
Plan with_evaluation(const UnitGraph& graph, const Choices& choices, const UnitGraph& tiled) {
  Plan plan = build_schedule(graph, choices);
  plan.evaluate = build_evaluation(tiled, plan);
  pack(plan);
  derive_waits(plan);
  return plan;
}

void expect_ordered(const Plan& plan) {
  int pairs = 0;
  for (const Part& part : kParts) {
    const Program& program = plan.*part.program;
    const ByteOrder order(plan, program, part.rounds);
    const auto unordered = order.unordered();
    ASSERT_FALSE(unordered) << part.name << ": " << order.text(*unordered);
    pairs += order.pairs();
  }
  ASSERT_GT(pairs, 10);
}

// Without any one wait two operations have no order; validate(), which is slower, refuses such a plan, too.
int expect_no_wait_idle(const Plan& plan, const UnitGraph& graph, bool validates) {
  int waits = 0;
  for (const Part& part : kParts) {
    const ByteOrder order(plan, plan.*part.program, part.rounds);
    Plan bad = plan;
    std::vector<Op>& ops = (bad.*part.program).ops;
    for (Op& op : ops) {
      const Waits all = op.waits;
      for (std::size_t wait = 0; wait < all.size(); ++wait, ++waits) {
        op.waits.erase(op.waits.begin() + static_cast<std::ptrdiff_t>(wait));
        EXPECT_TRUE(order.unordered(ops)) << part.name << ", operation " << &op - ops.data() << ", wait " << wait;
        if (validates) {
          EXPECT_THROW(validate(bad, graph), Error) << part.name << ", operation " << &op - ops.data() << ", wait " << wait;
        }
        op.waits = all;
      }
    }
  }
  return waits;
}

// Choices that are not uniform: each block, and each unit's values, may rest on another tier.
Choices mixed_choices(const UnitGraph& graph, std::uint64_t seed) {
  Draw draw(seed);
  const auto any = [&](auto... of) { return draw.any(of...); };
  Choices choices = toy_choices(graph, Tier::nvme);
  draw.order(choices);
  choices.form = any(StateForm::exact, StateForm::compact, StateForm::fp32, StateForm::fp16);
  choices.slots = any(1, 2);
  choices.ahead = any(0 * kKiB, 64 * kKiB, 256 * kKiB, kMiB);
  choices.update_chunk = any(16 * 1024, 48 * 1024, 2 << 20);
  if (any(0, 1) == 1) choices.sharding = {.ranks = 6, .group = any(3, 6), .stage = any(0, 1, 2, 3)};
  for (std::size_t block = 0; block < graph.blocks.size(); ++block) {
    choices.blocks[block].optimizer = any(Tier::device, Tier::nvme);
    choices.blocks[block].weight = choices.blocks[block].optimizer == Tier::device ? Tier::device : any(Tier::device, Tier::nvme);
    choices.blocks[block].gradient = any(Tier::device, Tier::nvme);
  }
  for (std::size_t unit = 0; unit < graph.units.size(); ++unit) {
    choices.units[unit].saved = any(Saved::keep, Saved::recompute, Saved::spill);
    choices.units[unit].boundary = any(Boundary::keep, Boundary::spill);
  }
  return choices;
}

TEST(Waits, OrderAllThatSharesAByte) {
  const UnitGraph tied = toy_graph({.layers = kLayers, .tied = true}), untied = toy_graph({.layers = kLayers, .tied = false});
  int plans = 0;
  for_every_choice(
      [&](const UnitGraph& graph, const Choices& choices) {
        const UnitGraph& tiled = graph.blocks.size() == tied.blocks.size() ? tied : untied;
        expect_ordered(with_evaluation(graph, choices, tiled));
        ++plans;
      },
      kLayers);
  EXPECT_GT(plans, 400);
}

TEST(Waits, OrderAllThatSharesAByteWhereEachBlockRestsElsewhere) {
  const UnitGraph tiled = toy_graph({.layers = kLayers}), fused = toy_graph({.layers = kLayers, .fused = true});
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    const UnitGraph& graph = seed % 2 == 0 ? tiled : fused;
    const Plan plan = with_evaluation(graph, mixed_choices(graph, seed), tiled);
    validate(plan, graph);
    expect_ordered(plan);
  }
}

TEST(Waits, OrderAllThatSharesAByteInPlansThatAreFound) {
  const UnitGraph tiled = toy_graph({.layers = kLayers}), fused = toy_graph({.layers = kLayers, .fused = true});
  MachineProfile machine;
  machine.gemm_bf16_flops = machine.gemm_fp32_flops = machine.attention_bf16_flops = machine.attention_fp32_flops = 4e11;
  machine.memory_bytes = machine.update_bytes = 3e10;
  machine.nvme_read_bytes = machine.nvme_write_bytes = machine.nvme_mixed_read_bytes = machine.nvme_mixed_write_bytes = 1e9;
  int programs = 0;
  for (const Bytes budget : {5 * kMiB / 2, 4 * kMiB, 6 * kMiB, kGiB}) {
    for (const bool clip : {false, true}) {
      const PlanRequest request{
          .budgets = {{Tier::device, budget}, {Tier::nvme, kGiB}}, .micro_batches = 2, .clip = clip, .evaluates = true};
      const PlanOutcome outcome = make_plan({&tiled, &fused}, machine, request);
      ASSERT_TRUE(outcome.plan) << budget << " of " << outcome.needed;
      validate(*outcome.plan, graph_of({&tiled, &fused}, outcome.plan->choices));
      expect_ordered(*outcome.plan);
      for (const Part& part : kParts) programs += ((*outcome.plan).*part.program).ops.empty() ? 0 : 1;
    }
  }
  EXPECT_GE(programs, 16) << "steps and evaluations";
}

// A plan that never trains has one program, from another builder.
TEST(Waits, OrderAllThatSharesAByteInInference) {
  const UnitGraph graph = toy_graph({.layers = kLayers});
  for (const Tier tier : {Tier::device, Tier::nvme}) {
    for (const Bytes ahead : {0 * kKiB, 256 * kKiB, 2 * kMiB}) {
      Choices choices = toy_choices(graph, tier);
      choices.ahead = ahead;
      Plan plan = build_inference(graph, choices);
      pack(plan);
      derive_waits(plan);
      ASSERT_NO_THROW(validate(plan, graph));
      expect_ordered(plan);
    }
  }
}

TEST(Waits, NoneIsIdle) {
  const UnitGraph tied = toy_graph({.layers = kLayers, .tied = true}), untied = toy_graph({.layers = kLayers, .tied = false});
  int plans = 0, waits = 0;
  for_every_choice(
      [&](const UnitGraph& graph, const Choices& choices) {
        if (plans++ % 23 != 0) return;
        const UnitGraph& tiled = graph.blocks.size() == tied.blocks.size() ? tied : untied;
        waits += expect_no_wait_idle(with_evaluation(graph, choices, tiled), graph, plans % 7 == 0);
      },
      kLayers);
  EXPECT_GT(waits, 1000);
}

// --- Tests of ByteOrder itself -----------------------------------------------------------------------------------------------

// Operations without waits, each on one of two resident buffers of a page on the device tier.
struct ToyProgram {
  ToyProgram() {
    plan.resident.push_back({.name = {"a page"}, .bytes = kExtentAlignment, .resident = true});
    plan.resident.push_back({.name = {"another"}, .bytes = kExtentAlignment, .offset = kExtentAlignment, .resident = true});
    plan.peak[Tier::device] = 2 * kExtentAlignment;
  }
  // Adds an operation that touches bytes of a page; with 0 bytes it touches nothing.
  int add(Lane lane, Access access, int buffer = 0, Bytes begin = 0, Bytes bytes = kExtentAlignment) {
    Op op;
    op.lane = lane;
    op.operands.push_back({.access = access, .buffer = buffer, .begin = begin, .bytes = bytes});
    plan.step.ops.push_back(op);
    return static_cast<int>(plan.step.ops.size()) - 1;
  }
  void wait(int op, int other, int step = 0) { plan.step.ops[static_cast<std::size_t>(op)].waits.push_back({other, step}); }
  using Pair = std::optional<std::pair<int, int>>;
  Pair unordered(int rounds = 1) const { return ByteOrder(plan, plan.step, rounds).unordered(); }
  static Pair pair(int a, int b) { return std::pair(a, b); }

  Plan plan;
};

TEST(ByteOrder, OfWhatSharesBytes) {
  ToyProgram toy;
  const int a = toy.add(Lane::compute, Access::write, 0, 0, 100);
  toy.add(Lane::update, Access::write, 0, 100, 100);  // other bytes of the page
  toy.add(Lane::network, Access::write, 1, 0, 100);   // bytes of another page
  EXPECT_FALSE(toy.unordered());
  const int d = toy.add(Lane::nvme_write, Access::read, 0, 99, 1);
  EXPECT_EQ(toy.unordered(), toy.pair(a, d));
  toy.wait(d, a);
  EXPECT_FALSE(toy.unordered());
  EXPECT_EQ(toy.unordered(2), toy.pair(d, 4 + a)) << "the next step writes what this one still reads";
  toy.wait(a, d, -1);
  EXPECT_FALSE(toy.unordered(2));
}

TEST(ByteOrder, OfReadersAlone) {
  ToyProgram toy;
  for (const Lane lane : {Lane::compute, Lane::update, Lane::nvme_read, Lane::nvme_read}) toy.add(lane, Access::read);
  EXPECT_FALSE(toy.unordered(2));
}

TEST(ByteOrder, OfLanes) {
  for (const Lane lane : {Lane::compute, Lane::update, Lane::network}) {
    ToyProgram toy;
    toy.add(lane, Access::write);
    toy.add(lane, Access::update);
    EXPECT_FALSE(toy.unordered(2)) << name_of(lane);
  }
  for (const Lane lane : {Lane::nvme_read, Lane::nvme_write}) {
    ToyProgram toy;
    const int a = toy.add(lane, Access::write), b = toy.add(lane, Access::read);
    EXPECT_EQ(toy.unordered(), toy.pair(a, b)) << "moves overlap";
    toy.wait(b, a);
    EXPECT_FALSE(toy.unordered());
  }
}

TEST(ByteOrder, OfChains) {
  // Moves complete in order: an operation that waits for the second has the first.
  ToyProgram in_order;
  in_order.add(Lane::nvme_read, Access::write, 0);
  const int second = in_order.add(Lane::nvme_read, Access::write, 1), user = in_order.add(Lane::compute, Access::read, 0);
  EXPECT_TRUE(in_order.unordered());
  in_order.wait(user, second);
  EXPECT_FALSE(in_order.unordered());
  // Moves start in order: the waits of the first are over when the second starts.
  ToyProgram starts;
  const int writer = starts.add(Lane::compute, Access::write, 0), first = starts.add(Lane::nvme_write, Access::read, 1);
  const int behind = starts.add(Lane::nvme_write, Access::read, 0);
  EXPECT_EQ(starts.unordered(), starts.pair(writer, behind));
  starts.wait(first, writer);
  EXPECT_FALSE(starts.unordered());
  // Order by way of a third operation, which shares nothing with the first.
  ToyProgram third;
  const int a = third.add(Lane::compute, Access::write, 0), b = third.add(Lane::update, Access::write, 1),
            c = third.add(Lane::nvme_write, Access::read, 0);
  third.wait(b, a);
  EXPECT_EQ(third.unordered(), third.pair(a, c));
  third.wait(c, b);
  EXPECT_FALSE(third.unordered());
}

TEST(ByteOrder, OfSlots) {
  ToyProgram toy;
  toy.plan.resident[0].slots = 2;
  toy.plan.resident[1].offset = 2 * kExtentAlignment;
  const int a = toy.add(Lane::compute, Access::write), b = toy.add(Lane::update, Access::read);
  EXPECT_EQ(toy.unordered(), toy.pair(a, b)) << "whichever slot is meant";
  toy.wait(b, a);
  EXPECT_FALSE(toy.unordered());
  toy.plan.resident[1].offset = kExtentAlignment;  // on the second slot
  const int c = toy.add(Lane::nvme_read, Access::write, 1);
  EXPECT_EQ(toy.unordered(), toy.pair(a, c));
}

}  // namespace
}  // namespace spillway
