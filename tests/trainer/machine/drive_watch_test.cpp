// Rates that are seen of a drive in made-up timelines.
#include "trainer/machine/drive_watch.h"

#include <gtest/gtest.h>

namespace spillway {
namespace {

constexpr double kNear = 1e-6;
constexpr Bytes kMove = 1'000'000'000;

// Adds consecutive moves of `bytes` each, all requested at the beginning.
void add_moves(std::vector<DriveMove>& lane, double begin_s, double each_s, int count, Bytes bytes = kMove) {
  for (int i = 0; i < count; ++i) lane.push_back({begin_s, begin_s + (i + 1) * each_s, bytes});
}

TEST(DriveWork, EachWayHasItsTime) {
  LaneSpans lanes;
  add_moves(lanes.reads, 0, 0.5, 12);  // until 6 s: 2 GB/s, alone until 2 s
  add_moves(lanes.writes, 2, 1, 8);    // until 10 s: 1 GB/s, alone from 6 s on
  const DriveWork work = drive_work(lanes, 0, 12, {});
  EXPECT_NEAR(work.read.seconds, 2, kNear);
  EXPECT_NEAR(work.read.rate(), 2e9, 1);
  EXPECT_NEAR(work.mixed_read.seconds, 4, kNear);
  EXPECT_NEAR(work.mixed_read.rate(), 2e9, 1);
  EXPECT_NEAR(work.mixed_write.rate(), 1e9, 1);
  EXPECT_NEAR(work.write.seconds, 4, kNear);
  EXPECT_NEAR(work.write.rate(), 1e9, 1);
  EXPECT_NEAR(work.busy_s, 10, kNear);
  EXPECT_NEAR(work.elapsed_s, 12, kNear);
  EXPECT_NEAR(work.bytes(), 20e9, 1);
}

TEST(DriveWork, OnlyWhatLiesBetweenCounts) {
  LaneSpans lanes;
  add_moves(lanes.reads, 0, 1, 10);
  const DriveWork work = drive_work(lanes, 3, 5.5, {});
  EXPECT_NEAR(work.read.seconds, 2.5, kNear);
  EXPECT_NEAR(work.read.bytes, 2.5e9, 1);
}

TEST(DriveWork, ALaneThatWaitsForRequestsShowsNothing) {
  LaneSpans lanes;
  for (int i = 0; i < 100; ++i) lanes.reads.push_back({0.02 * i, 0.02 * i + 0.01, kMiB});  // one small move at a time
  EXPECT_EQ(drive_work(lanes, 0, 2, {}).busy_s, 0);
  // Beside such reads the writes are neither alone nor mixed.
  add_moves(lanes.writes, 0, 1, 2);
  const DriveWork work = drive_work(lanes, 0, 2, {});
  EXPECT_NEAR(work.write.seconds, 1, kNear);
  EXPECT_EQ(work.mixed_write.seconds, 0);
  // Eight reads at once keep the drive busy.
  lanes = {};
  for (int i = 0; i < 16; ++i) lanes.reads.push_back({0.1 * (i / 8 * 8), 0.1 * (i + 1), 2 * kMiB});
  EXPECT_GT(drive_work(lanes, 0, 2, {}).read.seconds, 0.9);
}

TEST(DriveWork, MovesThatCompleteTogetherWentTogether) {
  LaneSpans lanes;
  for (int i = 0; i < 8; ++i) lanes.reads.push_back({0, 1 + 1e-5 * i, 4 * kMiB});
  const DriveWork work = drive_work(lanes, 0, 2, {});
  EXPECT_NEAR(work.read.bytes, 32.0 * kMiB, 1);
  EXPECT_NEAR(work.read.seconds, 1, 1e-3);
}

TEST(DriveWork, TimeBesideComputeCountsLess) {
  LaneSpans lanes;
  add_moves(lanes.reads, 0, 1, 10);
  lanes.compute = {{0, 2}, {2, 5}, {7, 7.5}};
  const DriveWork work = drive_work(lanes, 0, 10, {.read = 0.8, .write = 0.5});
  EXPECT_NEAR(work.read.seconds, 5.5 * 0.8 + 4.5, kNear);
  EXPECT_NEAR(work.busy_s, 10, kNear);
}

TEST(DriveWork, RatesWithTooLittleBehindThemAreNone) {
  DriveWork work;
  work.read = {.seconds = 4, .bytes = 8e9};
  work.write = {.seconds = 0.5, .bytes = 8e9};
  work.mixed_read = {.seconds = 5, .bytes = 0.5e9};
  const DriveRates rates = rates_of(work);
  EXPECT_EQ(rates.read, 2e9);
  EXPECT_EQ(rates.write, 0);
  EXPECT_EQ(rates.mixed_read, 0);
}

TEST(DriveWork, BesideTheOtherWayADriveIsNoFasterThanAlone) {
  DriveWork work;
  work.read = {.seconds = 2, .bytes = 2e9}, work.mixed_read = {.seconds = 40, .bytes = 50e9};
  work.write = {.seconds = 30, .bytes = 30e9}, work.mixed_write = {.seconds = 5, .bytes = 10e9};
  const DriveRates rates = rates_of(work);
  EXPECT_EQ(rates.read, 1.25e9);
  EXPECT_EQ(rates.mixed_read, 1.25e9);
  EXPECT_EQ(rates.write, 1e9);
  EXPECT_EQ(rates.mixed_write, 1e9);
}

class DriveWatchTest : public testing::Test {
 protected:
  static constexpr int kReads = 10, kWrites = 5;
  static Plan made_up() {
    Plan plan;
    const auto add = [&](Lane lane, Bytes bytes) {
      Op op;
      op.lane = lane;
      op.bytes = bytes;
      plan.step.ops.push_back(op);
    };
    for (int i = 0; i < kReads; ++i) add(Lane::nvme_read, kMove);
    for (int i = 0; i < kWrites; ++i) add(Lane::nvme_write, kMove);
    add(Lane::compute, 0);
    return plan;
  }
  // Ten reads from the beginning, and five writes from 8 s on, which overlap the next step's reads if that begins soon.
  static Timeline step(double origin_s, double read_s = 1, double write_s = 1) {
    Timeline timeline;
    for (int i = 0; i < kReads; ++i) timeline.spans.push_back({0, (i + 1) * read_s});
    for (int i = 0; i < kWrites; ++i) timeline.spans.push_back({8 * read_s, 8 * read_s + (i + 1) * write_s});
    timeline.spans.push_back({0, 10});
    timeline.origin_s = origin_s;
    return timeline;
  }
  std::optional<SeenDrive> observe(const Timeline& timeline) { return watch_.observe(timeline, kReads * kMove, kWrites * kMove); }

  const Plan plan_ = made_up();
  const MachineProfile machine_;
  DriveWatch watch_{plan_, machine_};
};

TEST_F(DriveWatchTest, StepsThatOverlapAreSeenAsTheyRan) {
  EXPECT_FALSE(observe(step(100)));
  const std::optional<SeenDrive> seen = observe(step(110));  // until 113 s: first step's writes, second step's reads
  ASSERT_TRUE(seen);
  EXPECT_NEAR(seen->rates.read, 1e9, 1);
  EXPECT_NEAR(seen->rates.mixed_read, 1e9, 1);
  EXPECT_NEAR(seen->rates.mixed_write, 1e9, 1);
  EXPECT_EQ(seen->rates.write, 0) << "never alone";
  EXPECT_NEAR(seen->seconds, 10, kNear);
  EXPECT_TRUE(is_utc_minute(seen->at));
  // The end of the last step is known, too: its reads run beside the writes of the step before, its writes alone.
  const std::optional<SeenDrive> last = watch_.finish();
  ASSERT_TRUE(last);
  EXPECT_NEAR(last->rates.write, 1e9, 1);
}

TEST_F(DriveWatchTest, WhatIsLongAgoCountsLess) {
  double now_s = 0;
  for (int i = 0; i < 100; ++i, now_s += 10) observe(step(now_s, 1));
  std::optional<SeenDrive> seen;
  for (int i = 0; i < 30; ++i, now_s += 20) seen = observe(step(now_s, 2));
  ASSERT_TRUE(seen);
  EXPECT_NEAR(seen->rates.read, 0.5e9, 0.01e9);
  EXPECT_LT(seen->seconds, 200);
}

TEST_F(DriveWatchTest, ADriveThatRestsSaysNothing) {
  for (int i = 0; i < 20; ++i) EXPECT_FALSE(observe(step(40.0 * i)));  // 13 s of 40
  EXPECT_FALSE(watch_.finish());
}

TEST_F(DriveWatchTest, ShortRunsSayNothing) {
  observe(step(0, 0.1, 0.1));
  EXPECT_FALSE(observe(step(1, 0.1, 0.1)));
  EXPECT_FALSE(watch_.finish());
}

TEST_F(DriveWatchTest, AStepThatLeftMovesOutIsLeftOut) {
  watch_.observe(step(0, 0.1, 0.1), kReads * kMove, 0);  // faster than any drive: it moved less than its operations say
  observe(step(10)), observe(step(20));
  const std::optional<SeenDrive> seen = watch_.finish();
  ASSERT_TRUE(seen);
  EXPECT_NEAR(seen->rates.read, 1e9, 1);
}

TEST_F(DriveWatchTest, APlanWithoutADriveIsNotWatched) {
  const Plan none;
  DriveWatch watch(none, machine_);
  EXPECT_FALSE(watch.observe({}, 0, 0));
  EXPECT_FALSE(watch.finish());
}

}  // namespace
}  // namespace spillway
