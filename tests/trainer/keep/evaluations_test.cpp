// Which evaluation was the best and how many came since without gain, as transformers' EarlyStoppingCallback counts them; and
// what a run directory keeps of them.
#include "trainer/keep/evaluations.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>

#include "memory/base/error.h"
#include "tests/trainer/damaged_text.h"
#include "tests/trainer/temporary_directory.h"

namespace spillway {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct Counted {
  std::vector<std::int64_t> without_gain;
  std::int64_t best_step;
};
Counted counted_of(const std::vector<double>& losses, double threshold) {
  Evaluations evaluations(threshold);
  Counted counted{{}, -1};
  for (std::size_t i = 0; i < losses.size(); ++i) {
    evaluations.add({static_cast<std::int64_t>(i), losses[i]});
    counted.without_gain.push_back(evaluations.without_gain());
  }
  if (evaluations.best()) counted.best_step = evaluations.best()->step;
  return counted;
}

TEST(Evaluations, WhatIsAGain) {
  const auto check = [](const std::vector<double>& losses, double threshold, const std::vector<std::int64_t>& without, int best) {
    const Counted counted = counted_of(losses, threshold);
    EXPECT_EQ(counted.without_gain, without);
    EXPECT_EQ(counted.best_step, best);
  };
  check({3, 2, 2, 1}, 0, {0, 0, 1, 0}, 3);  // equal is no gain
  check({3, 4, 5, 2.5}, 0, {0, 1, 2, 0}, 3);
  check({3, 2.75, 2.5, 2}, 0.25, {0, 1, 2, 0}, 3);  // by more than the threshold, from the lowest so far
  check({3, 2.875, 2.75, 2.625}, 0.25, {0, 1, 2, 3}, 3);
  check({1, 1.5}, 10, {0, 1}, 0);
  check({kNan, 2, kNan, std::numeric_limits<double>::infinity()}, 0, {1, 0, 1, 2}, 1);
  check({kNan}, 0, {1}, -1);
}

TEST(Evaluations, ADirectoryKeepsThem) {
  const TemporaryDirectory place;
  const RunDirectory directory(place.path() + "/run", ExistingRun::refuse);
  const std::string& path = directory.path();
  EXPECT_TRUE(evaluations_up_to(path, 100, 0, 7).empty());
  Evaluations evaluations(0.5, 7);
  const std::vector<double> losses = {3, 0.1, kNan, 2.25};
  for (std::size_t i = 0; i < losses.size(); ++i) evaluations.add({static_cast<std::int64_t>(10 * i), losses[i]});
  write_evaluations(directory, evaluations);
  const Evaluations again = evaluations_up_to(path, 100, 0.5, 7);
  EXPECT_EQ(again.json_text(), evaluations.json_text());
  EXPECT_EQ(again.best()->loss, 0.1);
  EXPECT_EQ(again.without_gain(), 2);
  // From an earlier step: what came after it is forgotten.
  EXPECT_FALSE(evaluations_up_to(path, 9, 0.5, 7).has(10));
  EXPECT_EQ(evaluations_up_to(path, 9, 0.5, 7).best()->step, 0);
  EXPECT_TRUE(evaluations_up_to(path, 10, 0.5, 7).has(10));
  EXPECT_TRUE(evaluations_up_to(path, 100, 0.5, 8).empty()) << "of other data";
}

TEST(Evaluations, TheStepThatWasAskedFor) {
  const TemporaryDirectory place;
  const RunDirectory directory(place.path() + "/run", ExistingRun::refuse);
  const std::string& path = directory.path();
  EXPECT_EQ(step_asked("", path), std::nullopt);
  EXPECT_EQ(step_asked("12", path), 12);
  for (const char* wrong : {"worst", "-1", "1.5", "12x", "Best"})
    EXPECT_REFUSED(step_asked(wrong, path), InputError, "allowed: the step of a checkpoint, or best");
  EXPECT_REFUSED(step_asked("best", ""), InputError, "--step: found without --load");
  EXPECT_REFUSED(step_asked("best", path), InputError, "has no evaluation");
  Evaluations evaluations;
  evaluations.add({0, 3.0});
  evaluations.add({4, 2.0});
  evaluations.add({8, 2.5});
  write_evaluations(directory, evaluations);
  EXPECT_REFUSED(step_asked("best", path), InputError, "which is step 4 of");
  std::filesystem::create_directories(path + "/checkpoints/4");
  EXPECT_EQ(step_asked("best", path), 4);
}

TEST(Evaluations, DamagedFilesNeverEscape) {
  const TemporaryDirectory place;
  const RunDirectory directory(place.path() + "/run", ExistingRun::refuse);
  Evaluations evaluations(0, 7);
  for (int i = 0; i < 5; ++i) evaluations.add({i, 1.5 + i});
  const std::string text = evaluations.json_text();
  std::uint32_t random = 5;
  int refused = 0;
  for (int round = 0; round < 300; ++round) {
    directory.write("best.json", damaged_text(text, 2, random));
    try {
      (void)evaluations_up_to(directory.path(), 100, 0, 7);
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 100);
}

TEST(Evaluations, TheBestCheckpointStaysBesideTheLast) {
  const TemporaryDirectory place;
  const RunDirectory directory(place.path() + "/run", ExistingRun::refuse);
  const std::string& path = directory.path();
  for (const std::int64_t step : {0, 4, 8, 12}) {
    directory.begin_checkpoint(step);
    directory.commit_checkpoint(step);
  }
  directory.prune_checkpoints(0, 4);
  EXPECT_THAT(checkpoint_steps(path), testing::ElementsAre(0, 4, 8, 12));
  directory.prune_checkpoints(1, 4);
  EXPECT_THAT(checkpoint_steps(path), testing::ElementsAre(4, 12));
  directory.prune_checkpoints(1, 12);
  EXPECT_THAT(checkpoint_steps(path), testing::ElementsAre(12));
  directory.remove_checkpoint(5);
  directory.remove_checkpoint(12);
  EXPECT_THAT(checkpoint_steps(path), testing::ElementsAre());
}

}  // namespace
}  // namespace spillway
