// Scales step by step beside those of DeepSpeed and of PyTorch (tests/data/loss_scale.json says how they were made).
#include "trainer/options/loss_scale.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "files/posix_file.h"

namespace spillway {
namespace {

using nlohmann::json;

const json& golden() {
  static const json whole = json::parse(read_text_file(SPILLWAY_TEST_DATA "/loss_scale.json", 1 << 20));
  return whole;
}

LossScaleOptions by_deepspeed(const json& block) {
  LossScaleOptions options{.policy = LossScalePolicy::deepspeed};
  if (block.contains("initial_scale_power")) options.initial = std::ldexp(1.0, block["initial_scale_power"].get<int>());
  if (block.contains("loss_scale_window")) options.window = block["loss_scale_window"].get<std::int64_t>();
  if (block.contains("hysteresis")) options.hysteresis = block["hysteresis"].get<std::int64_t>();
  if (block.contains("min_loss_scale")) options.least = block["min_loss_scale"].get<double>();
  options.consecutive_hysteresis = block.value("consecutive_hysteresis", false);
  return options;
}

LossScaleOptions by_pytorch(const json& arguments) {
  LossScaleOptions options{.policy = LossScalePolicy::pytorch};
  if (arguments.contains("init_scale")) options.initial = arguments["init_scale"].get<double>();
  if (arguments.contains("growth_interval")) options.window = arguments["growth_interval"].get<std::int64_t>();
  return options;
}

// Goes through a golden row; returns the step behind which the scale could not fall, or -1.
std::int64_t follow(const LossScaleOptions& options, const json& row) {
  LossScaleState state = initial_loss_scale(options);
  const json &overflow = row["overflow"], &scale = row["scale"];
  std::int64_t skipped = 0;
  for (std::size_t step = 0; step < overflow.size(); ++step) {
    EXPECT_EQ(state.scale, scale[step].get<double>()) << "step " << step;
    EXPECT_EQ(state.skipped_steps, skipped);
    const bool overflowed = overflow[step] == 1;
    skipped += overflowed ? 1 : 0;
    const std::optional<LossScaleState> next = next_loss_scale(options, state, overflowed);
    if (!next) return static_cast<std::int64_t>(step);
    state = *next;
  }
  return -1;
}

TEST(LossScale, FollowsDeepSpeed) {
  ASSERT_EQ(golden()["deepspeed"].size(), 5);
  for (const json& row : golden()["deepspeed"]) {
    SCOPED_TRACE(row["fp16"].dump());
    EXPECT_EQ(follow(by_deepspeed(row["fp16"]), row), row.value("error_after_step", -1));
  }
}

TEST(LossScale, FollowsPyTorch) {
  ASSERT_EQ(golden()["torch"].size(), 2);
  for (const json& row : golden()["torch"]) {
    SCOPED_TRACE(row["GradScaler"].dump());
    EXPECT_EQ(follow(by_pytorch(row["GradScaler"]), row), -1);
  }
}

TEST(LossScale, PyTorchsEndsWhereNothingIsLeft) {
  const LossScaleOptions options{.policy = LossScalePolicy::pytorch, .initial = 4 * kLeastLossScale};
  std::optional<LossScaleState> state = initial_loss_scale(options);
  for (int step = 0; step < 2; ++step) state = next_loss_scale(options, state.value(), true);
  EXPECT_EQ(state.value().scale, kLeastLossScale);
  EXPECT_FALSE(next_loss_scale(options, *state, true));
}

TEST(LossScale, GrowsNoFartherThanItsMost) {
  for (const LossScalePolicy policy : {LossScalePolicy::deepspeed, LossScalePolicy::pytorch}) {
    const LossScaleOptions options{.policy = policy, .initial = kMostLossScale / 2, .window = 1};
    LossScaleState state = initial_loss_scale(options);
    for (int step = 0; step < 5; ++step) state = next_loss_scale(options, state, false).value();
    EXPECT_EQ(state.scale, kMostLossScale);
  }
}

TEST(LossScale, AFixedOneStaysAndCountsWhatItSkips) {
  const LossScaleOptions options{.fixed = 1024};
  LossScaleState state = initial_loss_scale(options);
  EXPECT_EQ(state.scale, 1024);
  for (int step = 0; step < 50; ++step) state = next_loss_scale(options, state, step % 2 == 0).value();
  EXPECT_EQ(state.scale, 1024);
  EXPECT_EQ(state.skipped_steps, 25);
}

TEST(LossScale, IsAPowerOfTwoWithinItsRange) {
  for (const double scale : {1.0, 2.0, 65536.0, 0x1p-24, 0x1p64}) EXPECT_TRUE(is_loss_scale(scale)) << scale;
  for (const double scale : {0.0, -2.0, 3.0, 1000.0, 0x1p-25, 0x1p65, std::nan(""), HUGE_VAL})
    EXPECT_FALSE(is_loss_scale(scale)) << scale;
}

}  // namespace
}  // namespace spillway
