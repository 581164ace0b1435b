// The simulator on programs of a few operations, whose times are known by hand.
#include "memory/search/simulate.h"

#include <gtest/gtest.h>

#include "memory/base/error.h"

namespace spillway {
namespace {

constexpr double kNear = 1e-9;

MachineProfile machine() {
  MachineProfile machine;
  machine.gemm_bf16_flops = machine.gemm_fp32_flops = machine.attention_bf16_flops = machine.attention_fp32_flops = 1e9;
  machine.memory_bytes = machine.update_bytes = 1e9;
  machine.nvme_read_bytes = machine.nvme_write_bytes = machine.nvme_mixed_read_bytes = machine.nvme_mixed_write_bytes = 1e9;
  machine.operation_s = 0;
  machine.shared_compute = machine.shared_update = 1;
  return machine;
}

// An operation that takes so many milliseconds alone.
Op op(Lane lane, double ms, Waits waits = {}) {
  Op made;
  made.lane = lane;
  made.waits = std::move(waits);
  (lane == Lane::update ? made.work.bytes : made.work.gemm_flops) = ms * 1e6;
  made.bytes = static_cast<Bytes>(ms * 1e6);
  return made;
}

// Steps that do not overlap: every operation waits for all of the step before.
Prediction predict(std::vector<Op> ops, const MachineProfile& profile = machine(), std::int64_t rows = 1) {
  for (Op& op : ops) {
    for (int other = 0; other < std::ssize(ops); ++other) op.waits.push_back({other, -1});
  }
  Plan plan;
  plan.step.ops = std::move(ops);
  UnitGraph graph;
  graph.rows = rows;
  return predict(plan, graph, profile);
}

TEST(Simulate, ALaneRunsOneOperationAfterTheOther) {
  const Prediction prediction = predict({op(Lane::compute, 2), op(Lane::compute, 3)});
  EXPECT_NEAR(prediction.step_s, 5e-3, kNear);
  EXPECT_NEAR(prediction.timeline.spans[1].begin_s, 2e-3, kNear);
  EXPECT_EQ(prediction.bound.of_step().lane(), Lane::compute);
}

TEST(Simulate, AStepHasItsShareOfACommitsSyncsAndCopies) {
  Plan plan;
  plan.choices.durable_every = 4;
  plan.step.ops = {op(Lane::commit, 8, {{0, -1}})};
  plan.step.ops[0].kind = OpKind::commit;
  MachineProfile profile = machine();
  profile.nvme_sync_s = 3e-3;
  EXPECT_NEAR(predict(plan, UnitGraph{}, profile).step_s, (2 * 3e-3 + 8e-3) / 4, kNear);
  plan.choices.durable_every = kSeldom;
  EXPECT_NEAR(predict(plan, UnitGraph{}, profile).step_s, 0, kNear);
  plan.step.ops[0].bytes = 0;
  EXPECT_NEAR(predict(plan, UnitGraph{}, profile).step_s, 2 * 3e-3, kNear);
}

TEST(Simulate, AProductCostsItsExtraRows) {
  MachineProfile profile = machine();
  profile.gemm_bf16_extra_rows = 32;
  EXPECT_NEAR(predict({op(Lane::compute, 2)}, profile, 64).step_s, 3e-3, kNear);
  EXPECT_NEAR(predict({op(Lane::compute, 2)}, profile, 32 * 1000).step_s, 2.002e-3, kNear);
  profile.gemm_bf16_extra_rows = 0;
  EXPECT_NEAR(predict({op(Lane::compute, 2)}, profile, 64).step_s, 2e-3, kNear);
}

TEST(Simulate, UnitsPassesHaveTheRateOfTheirTypeWhereItIsKnown) {
  MachineProfile profile = machine();
  Op pass = op(Lane::compute, 0);
  pass.work = {.bytes = 1e6};
  EXPECT_NEAR(predict({pass}, profile).step_s, 1e-3, kNear);
  profile.pointwise_fp32_bytes = 0.25e9;
  EXPECT_NEAR(predict({pass}, profile).step_s, 1e-3, kNear);
  profile.pointwise_bf16_bytes = 0.5e9;
  EXPECT_NEAR(predict({pass}, profile).step_s, 2e-3, kNear);
}

TEST(Simulate, RequestsOfADriveTakeAWhileBesideTheirBytes) {
  MachineProfile profile = machine();
  const auto read_s = [&](Bytes bytes) {
    Op move = op(Lane::nvme_read, 0);
    move.bytes = bytes;
    return predict({move}, profile).step_s;
  };
  const double large_s = kRequestBytes / 1e9;
  EXPECT_NEAR(read_s(10 * kRequestBytes), 10 * large_s, kNear);
  EXPECT_NEAR(read_s(kRequestBytes / 2), large_s / 2, kNear) << "where small requests are not known, by bytes alone";
  profile.nvme_read_requests = 20'000;  // 50 microseconds each
  EXPECT_NEAR(read_s(10 * kRequestBytes), 10 * large_s, kNear);
  EXPECT_NEAR(read_s(kSmallRequestBytes), 50e-6, kNear);
  // Half of a large one: between the two.
  const double half = static_cast<double>(kRequestBytes / 2 - kSmallRequestBytes) / (kRequestBytes - kSmallRequestBytes);
  EXPECT_NEAR(read_s(kRequestBytes / 2), 50e-6 + half * (large_s - 50e-6), kNear);
  profile.nvme_read_requests = 1e9;  // cannot be: requests then cost only their bytes
  EXPECT_NEAR(read_s(10 * kRequestBytes), 10 * large_s, kNear);
}

TEST(Simulate, AUnitIsSlowerThanItsParts) {
  MachineProfile profile = machine();
  profile.layers_bf16 = 0.8;
  EXPECT_NEAR(predict({op(Lane::compute, 2), op(Lane::update, 1)}, profile).busy_s[Lane::compute], 2.5e-3, kNear);
  EXPECT_NEAR(predict({op(Lane::update, 1)}, profile).step_s, 1e-3, kNear);
}

TEST(Simulate, MovesUnderWayShareTheDriveAndCompleteInOrder) {
  // The small move's bytes are done before the large one's, but it completes behind the large one, which was started first.
  Prediction prediction = predict({op(Lane::nvme_read, 3), op(Lane::nvme_read, 1)});
  EXPECT_NEAR(prediction.step_s, 4e-3, kNear);
  EXPECT_NEAR(prediction.timeline.spans[0].end_s, prediction.timeline.spans[1].end_s, kNear);
  EXPECT_NEAR(prediction.timeline.spans[0].begin_s, prediction.timeline.spans[1].begin_s, kNear);
  // An operation that waits for the first of many moves has it no sooner than the moves that are under way beside it.
  std::vector<Op> ops;
  for (int i = 0; i < kMovesUnderWay; ++i) ops.push_back(op(Lane::nvme_read, 1));
  ops.push_back(op(Lane::compute, 2, {{0, 0}}));
  prediction = predict(ops);
  EXPECT_NEAR(prediction.timeline.spans.back().begin_s, 1e-3 * kMovesUnderWay, kNear);
  // Only the first of several large moves has requests in flight.
  prediction = predict({op(Lane::nvme_read, 40), op(Lane::nvme_read, 40)});
  EXPECT_NEAR(prediction.timeline.spans[0].end_s, 40e-3, kNear);
  EXPECT_NEAR(prediction.timeline.spans[1].end_s, 80e-3, kNear);
}

TEST(Simulate, LanesSlowEachOther) {
  MachineProfile profile = machine();
  profile.shared_compute = 0.5, profile.compute_beside_read = 0.8, profile.compute_beside_write = 0.9;
  profile.read_beside_compute = 0.5;
  EXPECT_NEAR(predict({op(Lane::compute, 1), op(Lane::update, 4)}, profile).timeline.spans[0].end_s, 2e-3, kNear);
  const Prediction beside_reads = predict({op(Lane::nvme_read, 4), op(Lane::compute, 4)}, profile);
  EXPECT_NEAR(beside_reads.timeline.spans[1].end_s, 5e-3, kNear);    // all of it beside the read
  EXPECT_NEAR(beside_reads.timeline.spans[0].end_s, 6.5e-3, kNear);  // 2.5 ms of it beside compute
  // Three at once: each of the others slows.
  const Prediction all =
      predict({op(Lane::compute, 1), op(Lane::nvme_read, 9), op(Lane::nvme_write, 9), op(Lane::update, 9)}, profile);
  EXPECT_NEAR(all.timeline.spans[0].end_s - all.timeline.spans[0].begin_s, 1e-3 / (0.5 * 0.8 * 0.9), kNear);
  // A drive that moves both ways moves less each way, and others lose less beside it.
  profile.nvme_mixed_read_bytes = 0.5e9, profile.nvme_mixed_write_bytes = 0.2e9;
  const Prediction mixed =
      predict({op(Lane::compute, 1), op(Lane::nvme_read, 9), op(Lane::nvme_write, 9), op(Lane::update, 9)}, profile);
  EXPECT_NEAR(mixed.timeline.spans[0].end_s - mixed.timeline.spans[0].begin_s, 1e-3 / (0.5 * 0.9 * 0.98), kNear);
  EXPECT_LE(mixed.bound.of_step().seconds, mixed.step_s + kNear);
  // No schedule is faster than the bound says.
  EXPECT_LE(beside_reads.bound.of_step().seconds, beside_reads.step_s + kNear);
  EXPECT_LE(all.bound.of_step().seconds, all.step_s + kNear);
}

TEST(Simulate, TheTwoWaysOfALinkLeaveEachOtherWhatTheyDo) {
  MachineProfile profile = machine();
  profile.upload_bytes = 2e9, profile.download_bytes = 1e9;
  const auto both = [&] { return predict({op(Lane::upload, 2), op(Lane::download, 4)}, profile).timeline.spans; };
  EXPECT_NEAR(both()[0].end_s, 1e-3, kNear) << "where nobody measured it, nothing";
  EXPECT_NEAR(both()[1].end_s, 4e-3, kNear);
  profile.mixed_upload_bytes = 1e9, profile.mixed_download_bytes = 0.5e9;
  EXPECT_NEAR(both()[0].end_s, 2e-3, kNear);
  EXPECT_NEAR(both()[1].end_s, 5e-3, kNear) << "2 ms beside the upload, for a quarter of it";
}

TEST(Simulate, CopiesAndUpdatesShareTheHostsMemory) {
  MachineProfile profile = machine();
  profile.upload_bytes = profile.download_bytes = 0.25e9;
  const auto ends_s = [&](Lane lane, double ms) { return predict({op(lane, ms), op(Lane::update, 3)}, profile).timeline.spans; };
  for (const Lane lane : {Lane::upload, Lane::download}) {
    EXPECT_NEAR(ends_s(lane, 100)[1].end_s, 4e-3, kNear) << "the copy's bytes are a quarter of the update's";
    EXPECT_NEAR(ends_s(lane, 1)[0].end_s, 4e-3, kNear) << "and lose nothing";
  }
  profile.update_beside_upload = 0.8, profile.update_beside_download = 0.6, profile.upload_beside_update = 0.5;
  EXPECT_NEAR(ends_s(Lane::upload, 100)[1].end_s, 3e-3 / 0.8, kNear);
  EXPECT_NEAR(ends_s(Lane::download, 100)[1].end_s, 3e-3 / 0.6, kNear);
  EXPECT_NEAR(ends_s(Lane::upload, 0.25)[0].end_s, 2e-3, kNear);
  EXPECT_NEAR(ends_s(Lane::download, 0.25)[0].end_s, 1e-3, kNear);
}

TEST(Simulate, WaitsThatFormACircleAreNoPlan) {
  EXPECT_ANY_THROW(predict({op(Lane::compute, 1, {{1, 0}}), op(Lane::update, 1, {{0, 0}})}));
}

}  // namespace
}  // namespace spillway
