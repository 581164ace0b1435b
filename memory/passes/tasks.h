// Tasks in their order and the objects that they touch: the list that the first pass writes and the later ones read.
// Not here: which tasks there are (task_list.h), where objects are and when they move (residency.h, moves.h).
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "memory/plan/plan.h"

namespace spillway {

// Something that tasks touch: an array of a block's state, a gradient sum, an activation of a strip of micro-batches.
struct Object {
  BufferName name;
  Category category = Category::staging;         // of its buffer where it rests
  Category staged_category = Category::staging;  // of its buffers on other tiers
  StateKind kind = StateKind::weight;
  Tier home = Tier::device;
  Bytes bytes = 0;
  int block = -1, unit = -1, micro_batch = -1;
  TurnSet lasts = 0;     // turns after which the next turn, or the next step, wants its contents
  int home_buffer = -1;  // resident buffer in which it rests; -1: it lives within a program
  Bytes home_begin = 0;  // offset in home_buffer
};

struct TaskOperand {
  Role role = Role::value;
  Access access = Access::read;
  StateKind kind = StateKind::weight;
  Tier at = Tier::device;   // where the task wants it
  TurnSet wants = kAlways;  // of Access::update: the turns in which it takes the contents; in others it writes
  int object = -1;          // -1 with bytes: scratch space; -1 without: null
  Bytes begin = 0, bytes = 0;
};

struct Task {
  OpHead op;
  Tier at = Tier::device;                    // the tier on which it runs
  int phase = 0;                             // counts units of compute; a unit's micro-batches share one
  int first_operand = 0, operand_count = 0;  // in TaskList::operands
};

struct TaskList {
  std::vector<Task> tasks;
  std::vector<TaskOperand> operands;  // task after task, in one array: there are very many tasks with a few each
  std::vector<Object> objects;

  std::span<const TaskOperand> operands_of(const Task& task) const {
    return {operands.data() + task.first_operand, static_cast<std::size_t>(task.operand_count)};
  }
};

}  // namespace spillway
