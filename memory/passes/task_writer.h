// Writes tasks one after the other, each with its operands. Not here: which tasks there are (task_list.h says who writes them).
#pragma once

#include <utility>
#include <vector>

#include "memory/passes/task_objects.h"
#include "memory/passes/tasks.h"

namespace spillway {

class TaskWriter {
 public:
  // Both must outlive this.
  TaskWriter(const UnitGraph& of_graph, const Plan& of_plan, Purpose of_purpose);

  const UnitGraph& graph;
  const Plan& plan;
  const Choices& choices;
  const Purpose purpose;
  const std::vector<Strip> strips;  // of a turn
  // The turns of a task that is done once a step, at its end.
  const TurnSet last_turn;
  int phase = 0;  // phase of the tasks added next

  int units() const { return static_cast<int>(graph.units.size()); }
  int blocks() const { return static_cast<int>(graph.blocks.size()); }
  TaskObjects& objects() { return objects_; }
  const Object& object(int index) const { return list_.objects[static_cast<std::size_t>(index)]; }
  // Units that add to a block's gradient, in the order of the backward.
  const std::vector<int>& gradient_users(int block) const { return gradient_users_[static_cast<std::size_t>(block)]; }

  // Adds a task. The reference may be filled in, and given operands, until the next task is added.
  Task& add(OpKind kind, Lane lane, Tier at = Tier::device);
  TaskOperand& take(Task& task, const TaskOperand& operand);
  TaskOperand& use(Task& task, Role role, Access access, int object, Bytes begin, Bytes bytes);
  TaskOperand& use(Task& task, Role role, Access access, int object);
  void scratch(Task& task, Bytes bytes) { take(task, {.role = Role::workspace, .access = Access::write, .bytes = bytes}); }
  // Adds all or some bytes of a resident buffer as an operand, on the tier where it rests.
  TaskOperand& at_rest(Task& task, Role role, Access access, int buffer, Bytes begin, Bytes bytes);
  TaskOperand& at_rest(Task& task, Role role, Access access, int buffer);
  // Adds control words, which rest on the device, as an operand on the tier where the task runs.
  TaskOperand& words(Task& task, Role role, Access access, int buffer, Bytes begin, Bytes bytes);

  // Gives the list away, without its spare capacity, which is tens of megabytes for a large model.
  TaskList take_list() {
    list_.tasks.shrink_to_fit(), list_.operands.shrink_to_fit(), list_.objects.shrink_to_fit();
    return std::move(list_);
  }

 private:
  TaskList list_;
  TaskObjects objects_;
  std::vector<std::vector<int>> gradient_users_;
};

}  // namespace spillway
