#include "trainer/options/lr_schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "memory/base/error.h"
#include "tests/trainer/temporary_directory.h"

namespace spillway {
namespace {

ScheduleOptions schedule(DecayStyle style, std::int64_t warmup, std::int64_t decay) {
  ScheduleOptions options;
  options.lr = 1e-3;
  options.min_lr = 1e-4;
  options.lr_warmup_iters = warmup;
  options.lr_decay_iters = decay;
  options.lr_decay_style = style;
  return options;
}

TEST(LrSchedule, WarmsUpFromTheFirstStep) {
  for (const DecayStyle style : {DecayStyle::constant, DecayStyle::linear, DecayStyle::cosine, DecayStyle::wsd}) {
    const LrSchedule lr(schedule(style, 4, 20), 20);
    EXPECT_DOUBLE_EQ(lr.lr(0), 1e-3 / 4);
    EXPECT_DOUBLE_EQ(lr.lr(2), 1e-3 * 3 / 4);
    EXPECT_DOUBLE_EQ(lr.lr(3), 1e-3);
    EXPECT_DOUBLE_EQ(lr.lr(4), 1e-3);  // p = 0
  }
}

TEST(LrSchedule, WarmUpMayBeAFractionOfTheDecay) {
  ScheduleOptions options = schedule(DecayStyle::linear, 0, 30);
  for (const auto& [fraction, steps] : {std::pair(0.1, 3.0), std::pair(0.11, 4.0), std::pair(1.0, 30.0)}) {
    options.lr_warmup_fraction = fraction;
    EXPECT_DOUBLE_EQ(LrSchedule(options, 100).lr(0), 1e-3 / steps) << fraction;
  }
  options.lr_decay_iters.reset();
  options.lr_warmup_fraction = 0.1;
  EXPECT_DOUBLE_EQ(LrSchedule(options, 100).lr(0), 1e-3 / 10);
}

TEST(LrSchedule, ConstantNeverDecays) {
  const LrSchedule lr(schedule(DecayStyle::constant, 0, 5), 5);
  EXPECT_EQ(lr.lr(0), 1e-3);
  EXPECT_EQ(lr.lr(5), 1e-3);
  EXPECT_EQ(lr.lr(1'000'000), 1e-3);
}

TEST(LrSchedule, LinearAndCosineFollowTheFormula) {
  const LrSchedule linear(schedule(DecayStyle::linear, 10, 110), 200);
  const LrSchedule cosine(schedule(DecayStyle::cosine, 10, 110), 200);
  for (std::int64_t step = 10; step < 110; ++step) {
    const double p = static_cast<double>(step - 10) / 100;
    EXPECT_NEAR(linear.lr(step), 1e-3 + (1e-4 - 1e-3) * p, 1e-18);
    EXPECT_NEAR(cosine.lr(step), 1e-4 + 9e-4 * 0.5 * (1 + std::cos(std::numbers::pi * p)), 1e-18);
  }
  EXPECT_EQ(linear.lr(110), 1e-4);
  EXPECT_EQ(cosine.lr(110), 1e-4);
  EXPECT_EQ(cosine.lr(199), 1e-4);
}

TEST(LrSchedule, DecayDefaultsToTrainIters) {
  ScheduleOptions options = schedule(DecayStyle::linear, 0, 0);
  options.lr_decay_iters.reset();
  const LrSchedule lr(options, 10);
  EXPECT_DOUBLE_EQ(lr.lr(5), (1e-3 + 1e-4) / 2);
  EXPECT_EQ(lr.lr(10), 1e-4);
}

TEST(LrSchedule, WsdDecaysOverItsLastSteps) {
  ScheduleOptions options = schedule(DecayStyle::wsd, 5, 100);
  const LrSchedule tenth(options, 100);  // K = 10
  EXPECT_EQ(tenth.lr(89), 1e-3);
  EXPECT_EQ(tenth.lr(90), 1e-3);
  EXPECT_DOUBLE_EQ(tenth.lr(95), (1e-3 + 1e-4) / 2);
  EXPECT_EQ(tenth.lr(100), 1e-4);
  options.lr_wsd_decay_iters = 50;
  EXPECT_DOUBLE_EQ(LrSchedule(options, 100).lr(75), (1e-3 + 1e-4) / 2);
}

// As there, where an overflow leaves the schedule where it is. Ours is a function of the step alone.
TEST(LrSchedule, DeepSpeedsLeavesOutStepsThatAppliedNothing) {
  ScheduleOptions options = schedule(DecayStyle::linear, 5, 20);
  EXPECT_EQ(LrSchedule(options, 20).lr(9, 3), LrSchedule(options, 20).lr(9));
  options.lr_rule = LrRule::deepspeed;
  const LrSchedule theirs(options, 20);
  EXPECT_EQ(theirs.lr(9, 3), theirs.lr(6));
  EXPECT_EQ(theirs.lr(3, 3), theirs.lr(0));
  EXPECT_NE(theirs.lr(9, 3), theirs.lr(9));
}

TEST(LrSchedule, SpansMustFit) {
  EXPECT_REFUSED(LrSchedule(schedule(DecayStyle::cosine, 21, 20), 20), InputError,
                 "--lr-warmup-iters: found 21, allowed: at most 20");
  EXPECT_NO_THROW(LrSchedule(schedule(DecayStyle::cosine, 20, 20), 20));
  EXPECT_NO_THROW(LrSchedule(schedule(DecayStyle::constant, 21, 20), 20));
  ScheduleOptions options = schedule(DecayStyle::wsd, 5, 20);
  options.lr_wsd_decay_iters = 16;
  EXPECT_REFUSED(LrSchedule(options, 20), InputError, "--lr-wsd-decay-iters: found 16, allowed: at most 15");
}

}  // namespace
}  // namespace spillway
