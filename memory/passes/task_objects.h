// The objects of a program's tasks. An object is made when it is first asked for, a piece anew each time; each rests where the
// plan has it. Not here: which tasks there are and in which order (task_list.h).
#pragma once

#include <vector>

#include "memory/passes/tasks.h"
#include "memory/plan/plan.h"

namespace spillway {

enum class Purpose : std::uint8_t { training, evaluation };

class TaskObjects {
 public:
  // All must outlive this. Objects are added to `objects` and named by their index there.
  TaskObjects(const UnitGraph& graph, const Plan& plan, Purpose purpose, std::vector<Object>& objects);

  int add(Object object);
  // A new object: elements [begin, begin + elements) of an array of a block's state.
  int state(int block, const RestingArray& array, std::int64_t begin, std::int64_t elements);
  int weight(int block);  // as it rests

  // The objects of a block's gradient on its way to its update, with one rank and one use of the block:
  //
  //   form          gradient = reduced   for_update           what waits for the next run   there, its pieces are
  //   exact, fp32   fp32 sum             the same             the sum                       piece_that_waited()
  //   compact       fp32 sum             bf16, of its own     its rounding                  the same

  // The sum that the use-th user of the block's gradient accumulates, in the order of the backward.
  int gradient(int block, int use);
  // The sum over ranks: this rank's part of it where gradients are sharded.
  int reduced_gradient(int block);
  // The gradient as its update takes it: the sum itself, or its bf16 rounding in compact form.
  int gradient_for_update(int block);
  // A new object: `elements` from `begin` on of a gradient that has waited since the step before; it is fetched by itself.
  int piece_that_waited(int block, std::int64_t begin, std::int64_t elements);
  bool waits_for_next_step(int block) const { return plan_.blocks[block].waiting_gradient >= 0; }
  int value(int index, const Strip& strip);
  int resident(int buffer);  // all of a resident buffer, where it rests

 private:
  void place_waiting_gradient(int block, Object& object) const;
  void place_sum(int block, std::size_t use, Object& object) const;

  const UnitGraph& graph_;
  const Plan& plan_;
  const Choices& choices_;
  const Purpose purpose_;
  std::vector<Object>& objects_;
  std::vector<int> weight_object_, reduced_object_, rounded_object_, value_object_, resident_object_;
  std::vector<std::vector<int>> gradient_objects_;
  std::vector<int> producer_;  // [values] the first unit whose forward writes the value; -1 for gradients
};

}  // namespace spillway
