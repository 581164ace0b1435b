#include "trainer/keep/starting_point.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "memory/base/error.h"

namespace spillway {
namespace {

using Kind = StartKind;

constexpr bool kGoesOn = true, kForks = false;

StoredStep stored(std::int64_t step, bool lies_as_planned = true) {
  return {.step = step, .place = "/nvme", .lies_as_planned = lies_as_planned};
}

RunRemains left(std::optional<std::int64_t> checkpoint, std::optional<StoredStep> stored = {}, bool has_log = true) {
  return {.run = "run", .has_log = has_log, .checkpoint = checkpoint, .stored = std::move(stored)};
}

TEST(StartingPoint, IsTheNewestOfWhatThereIs) {
  struct Row {
    const char* what;
    RunRemains remains;
    bool goes_on;
    StartingPoint start;
  };
  const Row rows[] = {
      {"no --load", {}, kForks, {Kind::anew}},
      {"killed before its first step", left({}, {}, false), kGoesOn, {Kind::anew}},
      {"a checkpoint", left(8), kGoesOn, {Kind::at_checkpoint, 8, 8}},
      {"a checkpoint of another run", left(8), kForks, {Kind::at_checkpoint, 8, 8}},
      {"a store", left({}, stored(9)), kGoesOn, {Kind::in_place, 9, 0}},
      {"a store, and a checkpoint before", left(8, stored(9)), kGoesOn, {Kind::in_place, 9, 8}},
      {"both of one step", left(9, stored(9)), kGoesOn, {Kind::in_place, 9, 9}},
      {"a store that a checkpoint is ahead of", left(10, stored(9)), kGoesOn, {Kind::at_checkpoint, 10, 10, true}},
      {"the same of another run", left(10, stored(9)), kForks, {Kind::at_checkpoint, 10, 10, false}},
      {"a store that is not as planned", left(8, stored(9, false)), kGoesOn, {Kind::take_over, 9, 9, true}},
      {"the store of another run", left(8, stored(9)), kForks, {Kind::take_over, 9, 9, false}},
      {"nothing left to do", left({}, stored(12)), kGoesOn, {Kind::in_place, 12, 0}},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.what);
    const StartingPoint start = starting_point(row.remains, {.goes_on = row.goes_on, .train_iters = 12});
    EXPECT_EQ(start.kind, row.start.kind);
    EXPECT_EQ(start.step, row.start.step);
    EXPECT_EQ(start.saved_step, row.start.saved_step);
    EXPECT_EQ(start.discards_store, row.start.discards_store);
  }
}

TEST(StartingPoint, RefusesWhatCannotBeGoneOnWith) {
  StoredStep other_model = stored(9), copy = stored(9);
  other_model.is_of_this_model = false;
  copy.rival = "the other";
  struct Row {
    RunRemains remains;
    bool goes_on;
    const char* words;
  };
  const Row rows[] = {
      {left({}), kGoesOn, "the run has no checkpoint"},
      {left({}, {}, false), kForks, "the run has no checkpoint"},
      {left({}, other_model), kGoesOn, "of another model"},
      {left(10, other_model), kForks, "of another model"},
      {left({}, copy), kGoesOn, "one is a copy of the other"},
      {left(13), kGoesOn, "--train-iters: found 12, allowed: at least 13, the step of run/checkpoints/13"},
      {left(8, stored(13)), kGoesOn, "--train-iters: found 12, allowed: at least 13, the step of /nvme"},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.words);
    try {
      (void)starting_point(row.remains, {.goes_on = row.goes_on, .train_iters = 12});
      ADD_FAILURE() << "was taken";
    } catch (const InputError& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr(row.words));
    }
  }
  // A run that starts as a fork takes the state of either of two copies.
  EXPECT_EQ(starting_point(left({}, copy), {.goes_on = kForks, .train_iters = 12}).kind, Kind::take_over);
}

}  // namespace
}  // namespace spillway
