// The slot that is written is right, whatever is held and whatever becomes durable: checked with slots that hold the label of a
// step.
#include "offload/generations.h"

#include <gtest/gtest.h>

#include <array>
#include <random>

namespace spillway {
namespace {

TEST(Generations, never_write_over_what_is_durable_nor_lose_the_present) {
  std::mt19937 random(3);
  int commits = 0, in_place = 0;
  for (int round = 0; round < 200; ++round) {
    const auto interval = static_cast<std::int64_t>(1 + random() % 3);
    const bool commits_first = random() % 2 == 0;  // as where updates do not wait for the next step
    Generations generations(true, interval);
    std::array<std::int64_t, 2> slots = {0, -1};  // the step whose state is there
    Generation durable = generations.take(0).value();
    bool held = false;
    const auto commit = [&] {
      const auto due = generations.take_due(held);
      if (!due) return;
      ++commits;
      EXPECT_FALSE(held);
      EXPECT_EQ(due->step % interval, 0);
      EXPECT_EQ(slots[static_cast<std::size_t>(due->slot)], due->step);
      durable = *due;
    };
    for (std::int64_t step = 1; step <= 20; ++step) {
      if (commits_first) commit();
      const Generation before = generations.present(), after = generations.next(step);
      EXPECT_EQ(slots[static_cast<std::size_t>(before.slot)], step - 1);
      EXPECT_NE(after.slot, durable.slot);
      in_place += after.slot == before.slot ? 1 : 0;
      slots[static_cast<std::size_t>(after.slot)] = step;
      if (!commits_first) commit();
      EXPECT_EQ(slots[static_cast<std::size_t>(durable.slot)], durable.step);
      if (random() % 5 == 0) held = !held;
    }
  }
  EXPECT_GT(commits, 500);
  EXPECT_GT(in_place, 500);
}

TEST(Generations, without_durable_steps_go_from_slot_to_slot) {
  Generations two(false, 0), beside(true, 0);
  EXPECT_EQ(two.next(1).slot, 0);
  EXPECT_EQ(beside.next(1).slot, 1);
  EXPECT_EQ(beside.next(2).slot, 0);
  EXPECT_FALSE(beside.take_due(false));
}

TEST(Generations, commit_a_state_once_and_on_demand_whatever_step_it_is) {
  Generations generations(true, 3);
  EXPECT_EQ(generations.take(0).value().slot, 0);
  EXPECT_FALSE(generations.take(0));
  EXPECT_FALSE(generations.take_due(false));
  EXPECT_EQ(generations.next(1).slot, 1);
  EXPECT_FALSE(generations.take_due(false));  // not a third step
  const auto asked = generations.take(1);
  ASSERT_TRUE(asked);
  EXPECT_EQ(asked->slot, 1);
  EXPECT_EQ(generations.next(2).slot, 0);
}

TEST(Generations, after_a_step_that_was_stopped_stay) {
  Generations generations(true, 1);
  generations.begin_with({4, 1});
  EXPECT_FALSE(generations.take_due(false));
  const Generation before = generations.present();
  EXPECT_EQ(generations.next(5).slot, 0);
  generations.roll_back(before);
  EXPECT_EQ(generations.present().slot, 1);
  EXPECT_EQ(generations.present().step, 4);
  EXPECT_FALSE(generations.take_due(false));
}

}  // namespace
}  // namespace spillway
