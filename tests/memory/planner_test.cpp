#include "memory/search/planner.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <random>

#include "memory/base/error.h"
#include "memory/passes/validate.h"
#include "tests/memory/toy_graph.h"

namespace spillway {
namespace {

MachineProfile machine() {
  MachineProfile profile;
  profile.gemm_bf16_flops = 700e9, profile.gemm_fp32_flops = 300e9;
  profile.attention_bf16_flops = 400e9, profile.attention_fp32_flops = 150e9;
  profile.memory_bytes = profile.update_bytes = 30e9;
  profile.nvme_read_bytes = 1.5e9, profile.nvme_write_bytes = 1.5e9;
  profile.nvme_mixed_read_bytes = profile.nvme_mixed_write_bytes = 0.75e9;
  return profile;
}

struct Graphs {
  UnitGraph tiled = toy_graph({.layers = 12}), fused = toy_graph({.layers = 12, .fused = true});
  GraphCandidates candidates() const { return {&tiled, &fused}; }
};

TEST(Planner, TakesAllOfItInCoreWhereThereIsRoom) {
  const Graphs graphs;
  const PlanOutcome outcome = make_plan(graphs.candidates(), machine(), {.budgets = {{Tier::device, kGiB}, {Tier::nvme, kGiB}}});
  ASSERT_TRUE(outcome.plan);
  EXPECT_EQ(outcome.plan->peak[Tier::nvme], 0);
  EXPECT_GT(outcome.prediction.step_s, 0);
  EXPECT_LE(outcome.prediction.bound.of_step().seconds, outcome.prediction.step_s * (1 + 1e-9));
}

TEST(Planner, StaysWithinEveryBudgetThatItAccepts) {
  const Graphs graphs;
  const Bytes in_core = make_plan(graphs.candidates(), machine(), {.budgets = {{Tier::device, kGiB}}}).plan->peak[Tier::device];
  int fitted = 0;
  double slowest = 0;
  for (Bytes budget = in_core; budget > 1 * kMiB; budget = budget * 3 / 4) {
    PlanRequest request{.budgets = {{Tier::device, budget}, {Tier::nvme, kGiB}}};
    const PlanOutcome outcome = make_plan(graphs.candidates(), machine(), request);
    if (!outcome.plan) {
      EXPECT_GT(outcome.needed, outcome.budget);
      EXPECT_EQ(outcome.budget, budget);
      break;
    }
    ++fitted;
    EXPECT_LE(outcome.plan->peak[Tier::device], budget);
    EXPECT_LE(outcome.plan->peak[Tier::nvme], kGiB);
    validate(*outcome.plan, graph_of(graphs.candidates(), outcome.plan->choices));
    slowest = std::max(slowest, outcome.prediction.step_s);
  }
  EXPECT_GE(fitted, 4);
  EXPECT_GT(slowest, 0);
}

TEST(Planner, KeepsToWhatIsForced) {
  const Graphs graphs;
  for (const int group : {1, 2}) {
    for (const UpdateTime update : {UpdateTime::after, UpdateTime::in_next_forward}) {
      PlanRequest request{.budgets = {{Tier::device, kGiB}, {Tier::nvme, kGiB}}, .micro_batches = 2};
      request.group = group;
      request.update = update;
      request.optimizer_tier = Tier::nvme;
      request.activations = SavedRequest::recompute;
      const PlanOutcome outcome = make_plan(graphs.candidates(), machine(), request);
      ASSERT_TRUE(outcome.plan);
      EXPECT_EQ(outcome.plan->choices.group, group);
      EXPECT_EQ(outcome.plan->choices.update, update);
      for (const BlockPlace& place : outcome.plan->choices.blocks) EXPECT_EQ(place.optimizer, Tier::nvme);
      for (const UnitPlace& place : outcome.plan->choices.units) EXPECT_EQ(place.saved, Saved::recompute);
    }
  }
}

TEST(Planner, RefusesWhatCannotBeExact) {
  const Graphs graphs;
  PlanRequest request{.budgets = {{Tier::device, kGiB}, {Tier::nvme, kGiB}}};
  request.update = UpdateTime::in_backward;
  request.optimizer_tier = Tier::device;
  EXPECT_NE(make_plan(graphs.candidates(), machine(), request).refusal, "");
  request.optimizer_tier.reset();
  request.durability = Durability::step;
  const PlanOutcome outcome = make_plan(graphs.candidates(), machine(), request);
  ASSERT_TRUE(outcome.plan) << outcome.refusal;
  EXPECT_EQ(outcome.plan->choices.slots, 2);
  for (const BlockPlace& place : outcome.plan->choices.blocks) EXPECT_EQ(place.optimizer, Tier::nvme);
  for (const BlockPlace& place : outcome.plan->choices.blocks) EXPECT_EQ(place.weight, Tier::nvme);
}

// State that no tier has room for alone rests on several.
TEST(Planner, TakesTiersTogether) {
  const UnitGraph tiled = toy_graph({.layers = 64}), fused = toy_graph({.layers = 64, .fused = true});
  const GraphCandidates graphs{&tiled, &fused};
  MachineProfile profile = machine();
  profile.upload_bytes = profile.download_bytes = 10e9;
  Bytes state = 0;
  for (const ParameterBlock& block : tiled.blocks) state += bytes_at_rest({}, block, StateForm::exact);
  const auto plan = [&](Chain chain, double device, double host, double nvme) {
    const auto share = [&](double of) { return round_up(static_cast<Bytes>(of * static_cast<double>(state)), kMiB); };
    const Bytes staging = 6 * kMiB;
    PlanRequest request{.budgets = {{Tier::device, share(device) + staging}, {Tier::nvme, share(nvme)}}, .chain = chain};
    if (has_host(chain)) request.budgets[Tier::host] = share(host) + staging;
    const PlanOutcome outcome = make_plan(graphs, profile, request);
    EXPECT_FALSE(outcome.plan && short_tier(outcome.plan->peak, request.budgets));
    if (outcome.plan) validate(*outcome.plan, graph_of(graphs, outcome.plan->choices));
    return outcome.plan.has_value();
  };
  EXPECT_TRUE(plan(Chain::device_nvme, 0.8, 0, 0.7));
  EXPECT_TRUE(plan(Chain::device_host_nvme, 0, 0.8, 0.7));
  EXPECT_TRUE(plan(Chain::device_host_nvme, 0.5, 0.5, 0.5));
  EXPECT_FALSE(plan(Chain::device_nvme, 0.2, 0, 0.6));
  EXPECT_FALSE(plan(Chain::device_host_nvme, 0, 0.3, 0.5));
}

// Plans that update before the norm is known are weighed where clipping is rare and a step can be taken back.
TEST(Planner, SpeculatesWhereClippingIsRare) {
  const Graphs graphs;
  PlanRequest request{
      .budgets = {{Tier::device, 8 * kMiB}, {Tier::nvme, kGiB}}, .parameter_tier = Tier::nvme, .optimizer_tier = Tier::nvme};
  MachineProfile slow_disk = machine();
  for (double MachineProfile::* rate : {&MachineProfile::nvme_read_bytes, &MachineProfile::nvme_write_bytes,
                                        &MachineProfile::nvme_mixed_read_bytes, &MachineProfile::nvme_mixed_write_bytes}) {
    slow_disk.*rate /= 8;
  }
  const PlanOutcome often = make_plan(graphs.candidates(), slow_disk, request);
  request.expected_clip_rate = 0.01;
  const PlanOutcome rarely = make_plan(graphs.candidates(), slow_disk, request);
  ASSERT_TRUE(often.plan && rarely.plan);
  EXPECT_NE(often.plan->choices.update, UpdateTime::in_backward);
  EXPECT_EQ(rarely.plan->choices.update, UpdateTime::in_backward);
  EXPECT_EQ(rarely.plan->choices.slots, 2);
  EXPECT_LT(1.01 * rarely.prediction.step_s, often.prediction.step_s);
  request.durability = Durability::checkpoint;  // one slot
  const PlanOutcome in_place = make_plan(graphs.candidates(), slow_disk, request);
  ASSERT_TRUE(in_place.plan);
  EXPECT_NE(in_place.plan->choices.update, UpdateTime::in_backward);
}

// Sums that outlast a turn rest beside the state, and may leave no room to have it twice.
TEST(Planner, HasStateTwiceOnlyWhereAllFits) {
  const UnitGraph tiled = toy_graph({.layers = 64}), fused = toy_graph({.layers = 64, .fused = true});
  PlanRequest request{.budgets = {{Tier::device, 3 * kMiB}, {Tier::nvme, kGiB}}, .micro_batches = 4, .form = StateForm::compact};
  request.group = 1;
  request.goal = Goal::any;
  request.durability = Durability::step;
  while (const auto plan = make_plan({&tiled, &fused}, machine(), request).plan)
    request.budgets[Tier::nvme] = plan->peak[Tier::nvme] - kMiB;
  EXPECT_GT(request.budgets[Tier::nvme], 18 * tiled.parameters);  // the state twice, and the gradients that wait
  request.durability = Durability::automatic;
  const PlanOutcome once = make_plan({&tiled, &fused}, machine(), request);
  ASSERT_TRUE(once.plan) << once.needed << " on " << name_of(once.short_tier);
  EXPECT_EQ(once.plan->choices.slots, 1);
  EXPECT_LE(once.plan->peak[Tier::nvme], request.budgets[Tier::nvme]);
}

// A step's overflow is known only behind its backward, so fp16 is not updated within it, as other forms are.
TEST(Planner, WhatMayOverflowIsNotUpdatedInTheBackward) {
  const Graphs graphs;
  PlanRequest request{.budgets = {{Tier::device, kMiB}, {Tier::nvme, kGiB}}, .micro_batches = 2, .clip = false};
  int in_backward = 0;
  for (const StateForm form : {StateForm::exact, StateForm::fp32, StateForm::fp16}) {
    for (const Bytes device : {kMiB, 2 * kMiB, 8 * kMiB}) {
      request.form = form;
      request.budgets[Tier::device] = device;
      const PlanOutcome outcome = make_plan(graphs.candidates(), machine(), request);
      if (!outcome.plan) continue;
      const bool follows = outcome.plan->choices.update == UpdateTime::in_backward;
      if (may_overflow(form)) {
        EXPECT_FALSE(follows);
      } else {
        in_backward += follows ? 1 : 0;
      }
    }
  }
  EXPECT_GT(in_backward, 0);
}

TEST(Planner, WhatItSaysIsNeededFits) {
  const Graphs graphs;
  PlanRequest request{.budgets = {{Tier::device, kMiB / 2}, {Tier::nvme, kGiB}}, .micro_batches = 2};
  const PlanOutcome outcome = make_plan(graphs.candidates(), machine(), request);
  ASSERT_FALSE(outcome.plan);
  ASSERT_EQ(outcome.short_tier, Tier::device);
  request.budgets[Tier::device] = outcome.needed;
  const PlanOutcome fastest = make_plan(graphs.candidates(), machine(), request);
  request.goal = Goal::any;
  const PlanOutcome any = make_plan(graphs.candidates(), machine(), request);
  ASSERT_TRUE(fastest.plan && any.plan);
  EXPECT_LE(any.plan->peak[Tier::device], outcome.needed);
  EXPECT_LE(fastest.prediction.step_s, any.prediction.step_s * (1 + 1e-9));
  EXPECT_LT(any.plans_built, fastest.plans_built);
}

// A search on few layers must not choose worse than one on all of them.
TEST(Planner, WeighsOnFewLayersWhatItThenFillsOnAll) {
  const UnitGraph tiled = toy_graph({.layers = 24}), fused = toy_graph({.layers = 24, .fused = true});
  const UnitGraph thin_tiled = toy_graph({.layers = 6}), thin_fused = toy_graph({.layers = 6, .fused = true});
  for (const int micro_batches : {1, 2, 4}) {
    for (const Bytes budget : {6 * kMiB, 12 * kMiB, 24 * kMiB}) {
      const PlanRequest request{.budgets = {{Tier::device, budget}, {Tier::nvme, kGiB}}, .micro_batches = micro_batches};
      const PlanOutcome whole = make_plan({&tiled, &fused}, machine(), request);
      const PlanOutcome weighed = make_plan({&tiled, &fused, &thin_tiled, &thin_fused}, machine(), request);
      ASSERT_TRUE(whole.plan && weighed.plan) << budget;
      EXPECT_LE(weighed.prediction.step_s, whole.prediction.step_s * 1.05) << budget << " " << micro_batches;
      EXPECT_LE(weighed.plan->peak[Tier::device], budget);
    }
  }
}

// The prediction that comes with a plan is the prediction of this very plan, whatever was weighed after it.
TEST(Planner, PredictsThePlanThatItGives) {
  const Graphs graphs;
  for (const Bytes budget : {6 * kMiB, 12 * kMiB, kGiB}) {
    const PlanRequest request{.budgets = {{Tier::device, budget}, {Tier::nvme, kGiB}}, .micro_batches = 2};
    const PlanOutcome outcome = make_plan(graphs.candidates(), machine(), request);
    ASSERT_TRUE(outcome.plan);
    const UnitGraph& graph = graph_of(graphs.candidates(), outcome.plan->choices);
    EXPECT_EQ(outcome.prediction.step_s, seconds_of_step(*outcome.plan, graph, machine()));
    EXPECT_EQ(outcome.prediction.bound.of_step().seconds, StepBound(*outcome.plan, graph, machine()).of_step().seconds);
    EXPECT_EQ(outcome.prediction.timeline.spans.size(), outcome.plan->step.ops.size());
  }
}

// A search may begin with the result of one for an alike request, and with no effort of its own it ends there.
TEST(Planner, BeginsWithThePlanOfAnAlikeRequest) {
  const Graphs graphs;
  PlanRequest request{.budgets = {{Tier::device, 6 * kMiB}, {Tier::nvme, kGiB}}, .micro_batches = 2};
  const PlanOutcome found = make_plan(graphs.candidates(), machine(), request);
  ASSERT_TRUE(found.plan);
  request.like = {found.outline, found.filled, &*found.plan};
  request.effort = 0;
  request.goal = Goal::time;
  const PlanOutcome same = make_plan(graphs.candidates(), machine(), request);
  EXPECT_FALSE(same.plan);
  EXPECT_EQ(same.plans_built, 0);
  EXPECT_EQ(same.prediction.step_s, found.prediction.step_s);
  EXPECT_EQ(same.prediction.bound.of_step().seconds, found.prediction.bound.of_step().seconds);

  request.goal = Goal::fastest;
  request.clip = false, request.update = UpdateTime::in_backward;
  const PlanOutcome in_backward = make_plan(graphs.candidates(), machine(), request);
  ASSERT_TRUE(in_backward.plan);
  EXPECT_EQ(in_backward.plan->choices.update, UpdateTime::in_backward);
  EXPECT_EQ(in_backward.plan->choices.group, found.plan->choices.group);
  EXPECT_LE(in_backward.plan->peak[Tier::device], 6 * kMiB);
  request.effort = 1;
  EXPECT_LE(make_plan(graphs.candidates(), machine(), request).prediction.step_s, in_backward.prediction.step_s);

  request.effort = 0;
  request.budgets[Tier::device] = 4 * kMiB;  // too little for the bytes that rested there
  const PlanOutcome smaller = make_plan(graphs.candidates(), machine(), request);
  ASSERT_TRUE(smaller.plan);
  EXPECT_LE(smaller.plan->peak[Tier::device], 4 * kMiB);
}

// More memory, or a tier more, never makes a plan slower by over 3 %: the search still finds the plan that it found with less.
TEST(Planner, MoreMemoryIsNeverSlower) {
  const Graphs graphs;
  MachineProfile apart = machine();
  apart.upload_bytes = apart.download_bytes = 10e9;
  std::mt19937 random(20261128);
  const auto one_of = [&](auto... of) {
    const std::array values{of...};
    return values[random() % values.size()];
  };
  int compared = 0;
  for (int trial = 0; trial < 24; ++trial) {
    const bool has_host = one_of(0, 1) == 1;
    PlanRequest request{.chain = has_host ? Chain::device_host_nvme : Chain::device_nvme, .micro_batches = one_of(1, 2, 4, 8)};
    request.budgets[Tier::device] = one_of(6, 8, 12, 16, 24) * kMiB;
    request.budgets[Tier::nvme] = kGiB;
    if (has_host) request.budgets[Tier::host] = one_of(0, 8, 16, 32) * kMiB;
    request.clip = one_of(0, 1) == 1;
    request.form = one_of(StateForm::exact, StateForm::compact);
    const MachineProfile on = has_host ? apart : machine();
    double before = std::numeric_limits<double>::infinity();
    for (const auto& [device, host] : {std::pair{1.0, 1.0}, {1.5, 1.0}, {1.5, 2.0}, {3.0, 2.0}}) {
      PlanRequest more = request;
      more.budgets[Tier::device] = static_cast<Bytes>(device * static_cast<double>(request.budgets[Tier::device]));
      more.budgets[Tier::host] = static_cast<Bytes>(host * static_cast<double>(request.budgets[Tier::host]));
      const PlanOutcome outcome = make_plan(graphs.candidates(), on, more);
      if (!outcome.plan) {
        EXPECT_EQ(before, std::numeric_limits<double>::infinity());
        continue;
      }
      EXPECT_LE(outcome.prediction.step_s, 1.03 * before)
          << "trial " << trial << ": " << request.micro_batches << " micro-batches, device " << more.budgets[Tier::device] / kMiB
          << " MiB, host " << more.budgets[Tier::host] / kMiB << " MiB, clip " << request.clip << ", " << name_of(request.form);
      compared += std::isfinite(before) ? 1 : 0;
      before = std::min(before, outcome.prediction.step_s);
    }
  }
  EXPECT_GT(compared, 40);
}

TEST(Planner, IsDeterministic) {
  const Graphs graphs;
  const PlanRequest request{.budgets = {{Tier::device, 6 * kMiB}, {Tier::nvme, kGiB}}, .micro_batches = 2};
  const PlanOutcome a = make_plan(graphs.candidates(), machine(), request),
                    b = make_plan(graphs.candidates(), machine(), request);
  ASSERT_TRUE(a.plan && b.plan);
  ASSERT_EQ(a.plan->step.ops.size(), b.plan->step.ops.size());
  EXPECT_EQ(a.prediction.step_s, b.prediction.step_s);
  for (std::size_t i = 0; i < a.plan->step.buffers.size(); ++i)
    EXPECT_EQ(a.plan->step.buffers[i].offset, b.plan->step.buffers[i].offset);
}

}  // namespace
}  // namespace spillway
