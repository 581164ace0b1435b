// Tasks on single rows of blocks that are looked up (Choices::fetches_rows): what the lookups of a step take is fetched before
// anything else, and the gradients of the rows that its tokens touch are kept, and applied, apart from those of their blocks.
// Not here: which rows those are (offload/row_ops.h), the updates of whole blocks (update_tasks.h).
//
// Legend: N tokens of a step.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "memory/passes/task_writer.h"
#include "memory/passes/update_tasks.h"

namespace spillway {

class RowTasks {
 public:
  // Both must outlive this. Where rows are not fetched, nothing but are_fetched() and is_apart() is called.
  RowTasks(TaskWriter& to, UpdateTasks& updates);

  bool are_fetched() const { return to_.choices.fetches_rows && to_.purpose == Purpose::training; }
  bool is_apart(int block) const { return keeps_rows_apart(to_.graph, to_.choices, block); }
  // The first unit with a lookup.
  int first_lookup() const { return lookups_.front(); }

  // What the lookups of a strip want, before anything else of the step: each row as the update that waits will leave it.
  void fetch(const Strip& strip);
  // The rows of a strip, for the lookup that asks first: it copies all of them. -1: they have been taken.
  int take(const Strip& strip);
  bool are_taken(const Strip& strip) const { return rows_object_[index(strip)] < 0; }

  // To the sums of the rows, before the backward of the first lookup.
  void add(const Strip& strip);
  // Before the backward of a unit, and after that of all its strips.
  void before_backward(int unit);
  void after_backward(int unit);

 private:
  std::size_t index(const Strip& strip) const { return static_cast<std::size_t>(strip.first / to_.choices.strip); }
  std::int64_t step_rows() const { return to_.choices.micro_batches * to_.graph.rows; }
  std::int64_t row_elements() const { return to_.graph.units[lookups_.front()].lookup.row_elements; }
  int block_of(int lookup) const { return to_.graph.units[lookup].blocks.front(); }
  // Where rows are apart, their blocks' gradients are those of the head that shares them, if there is one.
  bool is_tied(int block) const { return has_dense_gradient(to_.graph, to_.choices, block); }
  // Of a block that is looked up: all have the same arrays.
  StateList state() const { return state_of(to_.graph.blocks[block_of(lookups_.front())], to_.choices.form); }
  // Of the rows of a strip, or of all that the step's tokens touch.
  Task& add_task(OpKind kind, Lane lane, const Strip& strip = {.first = -1, .count = 1});
  int sums(int& object, std::string_view name);
  void finish_apart(int block);
  void finish();
  void fetch_touched();
  void move_touched(Lane lane, const Strip& strip, std::span<const int> objects);
  void update_touched();

  TaskWriter& to_;
  UpdateTasks& updates_;
  std::vector<int> lookups_;      // units with one
  std::vector<int> rows_object_;  // a strip: its rows for the lookup that takes them first, else -1
  // The unit before whose backward touched rows are fetched: in time for the lookups', and after that of all sharing heads.
  int touched_at_ = -1;
  int by_head_object_ = -1, by_lookups_object_ = -1;  // fp32 [N, row_elements]: what the head added to the rows, and the lookups
  int touched_gradient_object_ = -1;                  // [N, row_elements]: both, as the update takes them
  std::vector<int> touched_objects_;                  // [N, window]: the state of those rows, array after array
};

}  // namespace spillway
