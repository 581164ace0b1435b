// Tests reach_of() alone, on small task lists: how far ahead of its use an object is read.
#include "memory/passes/reach.h"

#include <gtest/gtest.h>

#include <numeric>

#include "tests/memory/compiled_plan.h"
#include "tests/memory/every_choice.h"

namespace spillway {
namespace {

// A task list in which the only task of each phase takes one object, of so many bytes.
TaskList chain_of(const std::vector<Bytes>& taken, Access access = Access::read) {
  TaskList list;
  for (const Bytes bytes : taken) {
    const int index = static_cast<int>(list.tasks.size());
    list.objects.push_back({.home = Tier::nvme, .bytes = bytes, .block = index});
    list.operands.push_back({.access = access, .object = index, .bytes = bytes});
    Task task;
    task.op.kind = OpKind::forward;
    task.op.lane = Lane::compute;
    task.phase = index;
    task.first_operand = index;
    task.operand_count = 1;
    list.tasks.push_back(task);
  }
  return list;
}

// [tasks] Reach::behind() of each task, for a buffer with `bytes` to write.
std::vector<int> behind(const TaskList& list, Bytes ahead, Bytes bytes = 0) {
  const Reach reach = reach_of(list, ahead);
  std::vector<int> last;
  for (int task = 0; task < std::ssize(list.tasks); ++task) last.push_back(reach.behind(task, bytes));
  return last;
}

TEST(Reach, SoManyBytesAreOnTheirWayForOthers) {
  const TaskList list = chain_of({10, 20, 30, 40, 50});
  EXPECT_EQ(reach_of(list, 0).ahead, (std::vector<int>{0, 1, 2, 3, 4}));
  EXPECT_EQ(reach_of(list, 40).ahead, (std::vector<int>{0, 0, 0, 2, 3}));
  EXPECT_EQ(reach_of(list, 50).ahead, (std::vector<int>{0, 0, 0, 1, 3}));
  EXPECT_EQ(reach_of(list, 100).ahead, (std::vector<int>{0, 0, 0, 0, 0}));
  // Objects that are only read leave nothing to be written, so buffers stay reserved through all tasks that follow.
  EXPECT_EQ(behind(list, 40), (std::vector<int>{4, 4, 4, 4, 4}));
}

TEST(Reach, AHalfIsForWhatIsStillWritten) {
  const TaskList list = chain_of({50, 40, 30, 20, 10}, Access::write);
  EXPECT_EQ(behind(list, 0), (std::vector<int>{0, 1, 2, 3, 4}));
  EXPECT_EQ(behind(list, 2 * 30), (std::vector<int>{0, 2, 4, 4, 4}));
  EXPECT_EQ(reach_of(list, 2 * 30).ahead, (std::vector<int>{0, 0, 0, 0, 0}));
}

TEST(Reach, ALargeObjectIsKeptForAsLongAsItIsWritten) {
  const TaskList list = chain_of({50, 40, 30, 20, 10}, Access::write);
  EXPECT_EQ(behind(list, 2 * 30, 15), behind(list, 2 * 30));
  EXPECT_EQ(behind(list, 2 * 30, 20), (std::vector<int>{1, 2, 4, 4, 4}));
  EXPECT_EQ(behind(list, 2 * 30, 45), (std::vector<int>{3, 4, 4, 4, 4}));
  EXPECT_EQ(behind(list, 0, 45), (std::vector<int>{0, 1, 2, 3, 4}));
}

// The strips of a phase share their unit's weights, which count once.
TEST(Reach, APhaseIsOne) {
  TaskList list = chain_of({10, 10, 10, 10});
  list.tasks[1].phase = 0, list.operands[1].object = 0;
  EXPECT_EQ(reach_of(list, 0).unit, (std::vector<int>{0, 0, 2, 3}));
  EXPECT_EQ(reach_of(list, 0).ahead, (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(reach_of(list, 10).ahead, (std::vector<int>{0, 0, 0, 1}));
}

// Between units come updates that take ten times as many bytes as a unit.
TEST(Reach, UnitsAreFetchedForWhileThoseBeforeThemCompute) {
  TaskList list = chain_of({10, 100, 10, 100, 10, 100, 10});
  for (const std::size_t update : {1, 3, 5}) list.tasks[update].op.lane = Lane::update;
  const Reach far = reach_of(list, 40), near = reach_of(list, 10);
  EXPECT_EQ(far.ahead, (std::vector<int>{0, 0, 0, 2, 0, 4, 2}));
  EXPECT_EQ(far.unit, far.ahead);
  EXPECT_EQ(near.ahead, (std::vector<int>{0, 0, 0, 2, 1, 4, 3}));  // at most one unit of compute is on its way
  EXPECT_EQ(reach_of(list, 0).ahead, (std::vector<int>{0, 1, 2, 3, 4, 5, 6}));
}

TEST(Reach, UnitsWeightsAreFetchedForBeforeUnitsAndTheirStripsBeforeStrips) {
  TaskList list = chain_of({10, 10, 100, 10, 10, 100, 10, 10});
  for (const std::size_t update : {2, 5}) list.tasks[update].op.lane = Lane::update;
  for (const std::size_t strip : {1, 4, 7}) list.tasks[strip].phase = list.tasks[strip - 1].phase;
  const Reach reach = reach_of(list, 60);
  EXPECT_EQ(reach.ahead[7], 4);
  EXPECT_EQ(reach.unit[7], 0);
}

TEST(Reach, HasItsLimitInEveryCombination) {
  int lists = 0;
  for_every_choice([&](const UnitGraph& graph, const Choices& choices) {
    if (lists++ % 7 != 0) return;
    const TaskList list = tasks_of(graph, choices);
    const Reach near = reach_of(list, choices.ahead), far = reach_of(list, 2 * choices.ahead + kKiB);
    for (int task = 0; task < std::ssize(list.tasks); ++task) {
      const auto at = static_cast<std::size_t>(task);
      ASSERT_LE(near.ahead[at], task);
      ASSERT_LE(near.unit[at], near.ahead[at]);
      ASSERT_LE(far.unit[at], near.unit[at]);
      ASSERT_GE(near.behind(task, 0), task);
      ASSERT_GE(near.behind(task, kMiB), near.behind(task, 0));
      ASSERT_LE(far.ahead[at], near.ahead[at]);
      ASSERT_GE(far.behind(task, 0), near.behind(task, 0));
    }
  });
  EXPECT_GT(lists, 500);
}

}  // namespace
}  // namespace spillway
