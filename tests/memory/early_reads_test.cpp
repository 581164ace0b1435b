// Tests the pass of early reads alone, on task lists of toy graphs: it moves reads for updates into room that the program leaves.
#include "memory/passes/early_reads.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/memory/compiled_plan.h"
#include "tests/memory/every_choice.h"

namespace spillway {
namespace {

bool is_computed_with(const TaskList& list, int object) {
  return std::ranges::any_of(list.tasks, [&](const Task& task) {
    return task.op.lane == Lane::compute &&
           std::ranges::any_of(list.operands_of(task), [&](const TaskOperand& operand) { return operand.object == object; });
  });
}

// The most bytes that are held on a tier at any task.
Bytes most_held(const TaskList& list, const Residencies& residencies, Tier tier) {
  Bytes most = 0;
  for (int task = 0; task < std::ssize(list.tasks); ++task) {
    Bytes held = 0;
    for (const Residency& of : residencies.all()) {
      const int begin = of.is_fetched() ? of.fetch_at : of.first.task;
      if (of.tier == tier && begin <= task && task <= std::max(of.free_after, of.last.task))
        held += round_up(list.objects[static_cast<std::size_t>(of.object)].bytes, kExtentAlignment);
    }
    for (const TaskOperand& operand : list.operands_of(list.tasks[static_cast<std::size_t>(task)])) {
      if (operand.object < 0 && operand.at == tier) held += round_up(operand.bytes, kExtentAlignment);
    }
    most = std::max(most, held);
  }
  return most;
}

// Visits every fifth choice: its tasks, and its residencies without and with early reads.
template <typename Visit>
void for_lists(Visit&& visit) {
  int lists = 0;
  for_every_choice([&](const UnitGraph& graph, const Choices& choices) {
    if (lists++ % 5 != 0) return;
    const TaskList list = tasks_of(graph, choices);
    const Residencies before(list, choices);
    Residencies after(list, choices);
    read_early(list, choices.chain, after);
    visit(list, before, after);
  });
  EXPECT_GT(lists, 500);
}

TEST(EarlyReads, TakeRoomThatIsThereForWhatIsNotComputedWith) {
  int moved = 0;
  for_lists([&](const TaskList& list, const Residencies& before, const Residencies& after) {
    for (std::size_t i = 0; i < after.all().size(); ++i) {
      const Residency &was = before.all()[i], &is = after.all()[i];
      ASSERT_LE(is.fetch_at, was.fetch_at);
      if (is.fetch_at == was.fetch_at) continue;
      ++moved;
      ASSERT_TRUE(is.is_fetched());
      ASSERT_GE(is.fetch_at, is.earliest);
      ASSERT_FALSE(is_computed_with(list, is.object));
    }
    ASSERT_LE(most_held(list, after, Tier::device), most_held(list, before, Tier::device));
  });
  EXPECT_GT(moved, 0);
}

// A lane brings one object after the other: no object that is wanted sooner waits for one that is read early.
TEST(EarlyReads, NoneIsAheadOfWhatIsWantedBeforeIt) {
  for_lists([&](const TaskList&, const Residencies& before, const Residencies& after) {
    for (std::size_t i = 0; i < after.all().size(); ++i) {
      const Residency& early = after.all()[i];
      if (early.fetch_at == before.all()[i].fetch_at) continue;
      for (const Residency& other : after.all()) {
        if (other.tier == early.tier && other.is_fetched() && other.first < early.first) {
          ASSERT_LE(other.fetch_at, early.fetch_at);
        }
      }
    }
  });
}

}  // namespace
}  // namespace spillway
