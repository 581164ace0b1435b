// Tests the tasks of updates alone: each piece lies between the moment when its gradient is complete and the moment when its
// block is due, and pieces come at an even pace.
#include "memory/passes/update_tasks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "memory/passes/resident_buffers.h"
#include "memory/passes/task_list.h"
#include "tests/memory/every_choice.h"

namespace spillway {
namespace {

struct Listed {
  Plan plan;
  TaskList list;
};
Listed listed(const UnitGraph& graph, const Choices& choices) {
  Listed made;
  made.plan.choices = choices;
  add_resident_buffers(graph, made.plan);
  made.list = step_tasks(graph, made.plan);
  return made;
}

// The first and the last task of the compute lane that takes a block's weights in this pass, or adds to its gradient.
struct Bounds {
  int first_forward = -1, last_backward = -1;
};
Bounds bounds_of(const UnitGraph& graph, const TaskList& list, int block) {
  Bounds bounds;
  for (int task = 0; task < std::ssize(list.tasks); ++task) {
    const OpHead& op = list.tasks[static_cast<std::size_t>(task)].op;
    if (op.unit < 0) continue;
    const Unit& unit = graph.units[static_cast<std::size_t>(op.unit)];
    const auto has = [&](const std::vector<int>& blocks) { return std::ranges::find(blocks, block) != blocks.end(); };
    if (op.kind == OpKind::forward && has(unit.blocks) && bounds.first_forward < 0) bounds.first_forward = task;
    if (op.kind == OpKind::backward && has(unit.gradient_blocks)) bounds.last_backward = task;
  }
  return bounds;
}

TEST(UpdateTasks, LieBetweenTheGradientAndTheNextUse) {
  int pieces = 0, lists = 0;
  for_every_choice([&](const UnitGraph& graph, const Choices& choices) {
    if (lists++ % 5 != 0) return;
    const auto [plan, list] = listed(graph, choices);
    const auto norm = std::ranges::find(list.tasks, OpKind::norm, [](const Task& task) { return task.op.kind; });
    for (int task = 0; task < std::ssize(list.tasks); ++task) {
      const OpHead& op = list.tasks[static_cast<std::size_t>(task)].op;
      if (op.kind != OpKind::update) continue;
      ++pieces;
      const Bounds bounds = bounds_of(graph, list, op.block);
      if (defers(choices, op.block)) {
        ASSERT_EQ(op.when, kWaitingUpdates);
        if (bounds.first_forward < 0) continue;
        ASSERT_LT(task, bounds.first_forward) << "block " << op.block;
      } else {
        ASSERT_GT(task, bounds.last_backward) << "block " << op.block;
        if (choices.update != UpdateTime::after) continue;
        ASSERT_GT(task, norm - list.tasks.begin());
      }
    }
  });
  EXPECT_GT(pieces, 1000);
}

// A layer's pieces are dealt out among the strips of other layers, not issued all at once between two strips.
TEST(UpdateTasks, ComeAtAnEvenPace) {
  const UnitGraph graph = toy_graph({.layers = 6, .layer_elements = 512 * 1024});
  for (const UpdateTime update : {UpdateTime::in_backward, UpdateTime::in_next_forward}) {
    Choices choices = toy_choices(graph, Tier::nvme);
    choices.update = update;
    choices.clip = false;
    choices.micro_batches = 4;
    set_order(choices, Order::vertical);
    choices.update_chunk = kBlockElements;
    choices.ahead = kMiB;
    const auto most_between = [&](Bytes ahead) {
      choices.ahead = ahead;
      const auto [plan, list] = listed(graph, choices);
      int pieces = 0, most = 0;
      bool inside = false;
      for (const Task& task : list.tasks) {
        if (task.op.kind == OpKind::update) ++pieces;
        if (task.op.kind != OpKind::forward && task.op.kind != OpKind::backward) continue;
        if (inside) most = std::max(most, pieces);
        inside = true;
        pieces = 0;
      }
      return most;
    };
    const int paced = most_between(kMiB), at_once = most_between(0);
    EXPECT_LE(3 * paced, at_once) << name_of(update);
  }
}

}  // namespace
}  // namespace spillway
