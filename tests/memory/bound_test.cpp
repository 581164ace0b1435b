// Lower bounds: no schedule is faster, none is said to be faster than its lanes, and updates that wait for the norm show.
#include "memory/search/bound.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "memory/search/planner.h"
#include "tests/memory/compiled_plan.h"
#include "tests/memory/toy_graph.h"

namespace spillway {
namespace {

MachineProfile machine(double drive = 1, double shared = 0.5) {
  MachineProfile profile;
  profile.gemm_bf16_flops = 700e9, profile.gemm_fp32_flops = 300e9;
  profile.attention_bf16_flops = 400e9, profile.attention_fp32_flops = 150e9;
  profile.memory_bytes = profile.update_bytes = 30e9;
  profile.nvme_read_bytes = 1.5e9 * drive, profile.nvme_write_bytes = 2.5e9 * drive;
  profile.nvme_mixed_read_bytes = 0.9e9 * drive, profile.nvme_mixed_write_bytes = 0.9e9 * drive;
  profile.nvme_read_requests = 60e3 * drive;
  profile.upload_bytes = 4e9, profile.download_bytes = 5e9;
  profile.mixed_upload_bytes = profile.mixed_download_bytes = 3e9;
  profile.shared_compute = shared, profile.shared_update = 1.1 - shared;
  profile.compute_beside_read = 0.9, profile.compute_beside_write = 0.85, profile.read_beside_compute = 0.8;
  profile.update_beside_write = 0.7;
  return profile;
}

// --- lanes ---

PerLane busy(double compute, double read, double write, double update) {
  PerLane seconds{};
  seconds[Lane::compute] = compute, seconds[Lane::update] = update;
  seconds[Lane::nvme_read] = read, seconds[Lane::nvme_write] = write;
  return seconds;
}

MachineProfile apart() {
  MachineProfile profile = machine();
  profile.shared_compute = profile.shared_update = 1;
  profile.compute_beside_read = profile.compute_beside_write = profile.read_beside_compute = profile.update_beside_write = 1;
  return profile;
}

TEST(LaneBounds, ALaneAloneTakesItsWork) {
  const LanesBound bound = LaneBounds(apart()).of(busy(3, 2, 0, 1));
  EXPECT_NEAR(bound.seconds, 3, 1e-9);
  EXPECT_EQ(bound.lanes, set_of(Lane::compute));
  EXPECT_EQ(bound.lane, Lane::compute);
}

TEST(LaneBounds, ReadsAndWritesShareTheDrive) {
  // Together 0.6 and 0.36 of what either does alone: 10 s of reads and 6 of writes side by side take 16.7.
  const LanesBound bound = LaneBounds(apart()).of(busy(3, 10, 6, 1));
  EXPECT_NEAR(bound.seconds, 10 + 6, 0.01) << "one after the other is better than both at once";
  EXPECT_EQ(bound.lanes, set_of(Lane::nvme_read) | set_of(Lane::nvme_write));
  EXPECT_EQ(bound.lane, Lane::nvme_read);
  MachineProfile both_ways = apart();
  both_ways.nvme_mixed_read_bytes = 0.8 * both_ways.nvme_read_bytes,
  both_ways.nvme_mixed_write_bytes = 0.7 * both_ways.nvme_write_bytes;
  // 7 s side by side leave 4.4 s of the reads.
  EXPECT_NEAR(LaneBounds(both_ways).of(busy(3, 10, 4.9, 1)).seconds, 7 + 4.4, 1e-6);
}

TEST(LaneBounds, TwoThatSlowEachOtherTakeLongerThanEither) {
  // 0.5 and 0.6 of what each does alone: 5 s of updates take 8.3 s, in which 4.2 s of the compute are done.
  EXPECT_NEAR(LaneBounds(machine()).of(busy(10, 0, 0, 5)).seconds, 10 + 5 - 0.1 * 5 / 0.6, 1e-9);
  EXPECT_EQ(LaneBounds(machine()).of(busy(10, 0, 0, 5)).lane, Lane::compute);
  EXPECT_EQ(LaneBounds(machine()).of(busy(4, 0, 0, 5)).lane, Lane::update);
  // A second one that hardly adds anything is not named.
  EXPECT_EQ(LaneBounds(machine()).of(busy(10, 0, 0, 0.001)).lanes, set_of(Lane::compute));
}

// Compute does 0.9 of its own beside reads, but more while writes slow these.
TEST(LaneBounds, AThirdMayMakeAPairFaster) {
  MachineProfile profile = apart();
  profile.compute_beside_read = 0.9;
  const LaneSet all = set_of(Lane::compute) | set_of(Lane::nvme_read) | set_of(Lane::nvme_write);
  const double beside_both = LaneSpeeds(profile).while_running(all)[Lane::compute];
  EXPECT_GT(beside_both, 0.9);
  EXPECT_NEAR(LaneBounds(profile).of(busy(10, 10, 0, 0)).seconds, 10 + (1 - beside_both) * 10, 1e-9);
}

// --- steps ---

// More than the simulator's own rounding: it measures between two of its rounds, one of which may end a little early.
constexpr double kRounding = 1 + 1e-6;

Bound obeyed_bound(const Plan& plan, const UnitGraph& graph, const MachineProfile& machine) {
  const Prediction prediction = predict(plan, graph, machine);
  const Bound bound = prediction.bound.of_step();
  EXPECT_LE(bound.seconds, prediction.step_s * kRounding);
  EXPECT_GE(bound.seconds * kRounding, LaneBounds(machine).of(prediction.busy_s).seconds);
  EXPECT_GE(bound.seconds * kRounding, std::ranges::max(prediction.busy_s));
  EXPECT_GT(bound.seconds, 0.45 * prediction.step_s) << "of no use";
  return bound;
}

std::string words_of(const Choices& choices) {
  return fmt::format("{} order, update {}, clip {}, {} slots, {} micro-batches, {} ahead", order_words(choices),
                     name_of(choices.update), choices.clip, choices.slots, choices.micro_batches, choices.ahead);
}

// Choices drawn at random, good or bad.
Choices drawn(const UnitGraph& graph, std::mt19937& random) {
  const auto one_of = [&](int count) { return static_cast<int>(random() % static_cast<unsigned>(count)); };
  Choices choices = toy_choices(graph, Tier::device);
  choices.update = static_cast<UpdateTime>(one_of(3));
  choices.micro_batches = 1 + one_of(4);
  set_order(choices, one_of(2) == 0 ? Order::vertical : Order::horizontal);
  choices.clip = one_of(2) == 0;
  choices.slots = 1 + one_of(2);
  choices.form = one_of(3) == 0 ? StateForm::compact : StateForm::exact;
  choices.ahead = one_of(4) * 256 * kKiB;
  choices.update_chunk = 16 * kBlockElements;
  const bool all_on_nvme = speculates(choices) || one_of(2) == 0;
  if (speculates(choices)) choices.slots = 2;
  for (std::size_t block = 0; block < graph.blocks.size(); ++block) {
    if (!all_on_nvme && one_of(3) == 0) continue;
    choices.blocks[block].optimizer = Tier::nvme;
    if (all_on_nvme || one_of(2) == 0) choices.blocks[block].weight = Tier::nvme;
    if (all_on_nvme || one_of(2) == 0) choices.blocks[block].gradient = Tier::nvme;
  }
  if (may_defer_blocks(choices.update, choices.clip, choices.slots) && one_of(2) == 0) {
    for (std::size_t block = 0; block < graph.blocks.size(); ++block) {
      if (!graph.blocks[block].looked_up && one_of(2) == 0) choices.blocks[block].deferred = Deferred::yes;
    }
  }
  for (UnitPlace& place : choices.units) {
    place.saved = static_cast<Saved>(one_of(3));
    place.boundary = static_cast<Boundary>(one_of(2));
  }
  return choices;
}

// The same choices with a host between, and blocks and spilled values on drawn tiers.
Choices with_host(Choices choices, std::mt19937& random) {
  const auto any_tier = [&] { return std::array{Tier::device, Tier::host, Tier::nvme}[random() % 3]; };
  choices.chain = Chain::device_host_nvme;
  choices.update_tier = random() % 2 == 0 ? Tier::host : Tier::device;
  for (const auto array : {&BlockPlace::weight, &BlockPlace::optimizer, &BlockPlace::gradient}) {
    for (BlockPlace& place : choices.blocks) place.*array = speculates(choices) ? Tier::nvme : any_tier();
  }
  for (UnitPlace& place : choices.units) place.spill = random() % 2 == 0 ? Tier::host : Tier::nvme;
  return choices;
}

TEST(StepBound, NoScheduleIsFaster) {
  std::mt19937 random(7);
  std::array<int, 2> by_norm{};  // without a host between, and with one
  for (int i = 0; i < 400; ++i) {
    // Much state beside few activations, so that device memory holds little of it; or the other way around.
    const std::int64_t elements = (i % 5 < 3 ? 1024 : 64) * 1024;
    const UnitGraph graph =
        toy_graph({.layers = std::array{2, 7, 24}[i % 3], .tied = i % 2 == 0, .fused = i % 4 == 0, .layer_elements = elements});
    const Choices drawn_choices = drawn(graph, random), choices = i % 4 < 3 ? drawn_choices : with_host(drawn_choices, random);
    const MachineProfile profile = i % 5 == 0 ? apart() : machine(std::array{0.1, 1.0, 3.0, 6.0}[random() % 4], 0.5);
    SCOPED_TRACE(fmt::format("{}: {}", i, words_of(choices)));
    const Bound bound = obeyed_bound(compiled(graph, choices), graph, profile);
    EXPECT_FALSE(bound.by_norm && choices.update == UpdateTime::in_backward);
    if (bound.by_norm) ++by_norm[has_host(choices.chain)];
  }
  EXPECT_GE(by_norm[false], 30);
  EXPECT_GE(by_norm[true], 3);
}

// The bound that a plan gives for more micro-batches is that of the plan with as many.
TEST(StepBound, GrowsWithMicroBatches) {
  const UnitGraph graph = toy_graph({.layers = 7});
  for (const Order order : {Order::vertical, Order::horizontal}) {
    for (const UpdateTime update : {UpdateTime::after, UpdateTime::in_backward, UpdateTime::in_next_forward}) {
      const auto bound_of = [&](int micro_batches) {
        Choices choices = toy_choices(graph, Tier::nvme);
        choices.update = update, choices.clip = update != UpdateTime::in_backward;
        choices.micro_batches = micro_batches;
        set_order(choices, order);
        return StepBound(compiled(graph, choices), graph, machine());
      };
      const StepBound few = bound_of(4);
      for (const int count : {8, 64, 512})
        EXPECT_NEAR(few.with_micro_batches(count).seconds / bound_of(count).of_step().seconds, 1, 0.03) << count;
      EXPECT_LT(few.with_micro_batches(8).seconds, 2 * few.of_step().seconds) << "a part comes once a step";
    }
  }
}

}  // namespace
}  // namespace spillway
