#include "memory/row_tasks.h"

#include <algorithm>

#include "memory/resident_buffers.h"

namespace spillway {

RowTasks::RowTasks(TaskWriter& to, UpdateTasks& updates) : to_(to), updates_(updates) {
  if (!are_fetched()) return;
  for (int unit = 0; unit < to.units(); ++unit) {
    if (to.graph.units[unit].lookup.rows > 0) lookups_.push_back(unit);
  }
  touched_at_ = std::max(lookups_.back(), std::min(lookups_.back() + to.choices.lookahead, first_sharing_unit(to.graph) - 1));
  rows_object_.assign(to.strips.size(), -1);
}

Task& RowTasks::add_task(OpKind kind, Lane lane, const Strip& strip) {
  Task& task = to_.add(kind, lane);
  task.op.index = Index::rows;
  task.op.micro_batch = strip.first, task.op.micro_batches = strip.count;
  return task;
}

void RowTasks::fetch(const Strip& strip) {
  const Choices& choices = to_.choices;
  const std::int64_t rows = strip.count * to_.graph.rows;
  const auto rows_of = [&](std::string_view name, Bytes bytes_of_row) {
    return to_.objects().add({.name = {"rows", name}, .bytes = rows * bytes_of_row, .micro_batch = strip.first});
  };
  std::array<int, kStateKinds> fetched{-1, -1, -1, -1};
  const auto fetch = [&](Task& task, StateKind kind, Role role, Bytes each, std::string_view name, const auto& home) {
    for (const int unit : lookups_) to_.at_rest(task, Role::from, Access::read, home(block_of(unit))).kind = kind;
    const int object = rows_of(name, row_window(row_elements() * each));
    to_.use(task, role, Access::write, object).kind = kind;
    task.op.bytes += to_.object(object).bytes;
    task.op.small_requests += rows;
    return object;
  };
  int gradient = -1;
  for (const TurnSet when : {kEveryTurn, kPendingTurn}) {
    if (when == kPendingTurn && !defers_all(choices)) break;  // no update waits
    Task& task = add_task(OpKind::move, Lane::nvme_read, strip);
    task.op.when = when;
    for (const StateKind kind : kKinds) {
      const Bytes each = bytes_per_element(choices.form, kind);
      if (each == 0 || (kind == StateKind::weight) != (when == kEveryTurn)) continue;
      fetched[static_cast<int>(kind)] = fetch(task, kind, Role::to, each, name_of_kind(kind),
                                              [&](int block) { return to_.plan.state_buffer[block][static_cast<int>(kind)]; });
    }
    if (when == kEveryTurn || !is_tied(block_of(lookups_.front()))) continue;
    gradient = fetch(task, StateKind::weight, Role::waiting, gradient_bytes_per_element(choices.form), ".gradient",
                     [&](int block) { return to_.plan.gradient_buffer[block]; });
  }
  Task& task = add_task(OpKind::update, Lane::update, strip);
  task.op.work.bytes =
      static_cast<double>(rows * row_elements() * (gradient_bytes_per_element(choices.form) + bytes_per_element(choices.form)));
  for (const StateKind kind : kKinds) {
    const int object = fetched[static_cast<int>(kind)];
    if (object >= 0) to_.use(task, Role::state, Access::update, object).kind = kind;
  }
  if (gradient >= 0) to_.use(task, Role::waiting, Access::read, gradient);
  const int taken = rows_of(".lookup", row_elements() * bytes_per_element(choices.form, StateKind::weight));
  to_.use(task, Role::looked_up, Access::write, taken);
  if (defers_all(choices)) {
    to_.at_rest(task, Role::touched_gradients, Access::read, to_.plan.row_gradient_buffer);
    to_.at_rest(task, Role::touched, Access::read, to_.plan.touched_buffer);
    updates_.read_settled_loss(task);
  }
  rows_object_[index(strip)] = taken;
}

int RowTasks::take(const Strip& strip) { return std::exchange(rows_object_[index(strip)], -1); }

int RowTasks::sums(int& object, std::string_view name) {
  if (object < 0) {
    object = to_.objects().add({.name = {"rows", name},
                                .category = Category::gradients,
                                .staged_category = Category::gradients,
                                .bytes = step_rows() * row_elements() * static_cast<Bytes>(sizeof(float))});
  }
  return object;
}

void RowTasks::add(const Strip& strip) {
  const Unit& lookup = to_.graph.units[lookups_.front()];
  Task& task = add_task(OpKind::gradient_add, Lane::update, strip);
  task.op.work.bytes = 10.0 * static_cast<double>(strip.count * to_.graph.rows * row_elements());
  to_.use(task, Role::addend, Access::read, to_.objects().value(lookup.backward.front().value, strip));
  to_.use(task, Role::sum, strip.first == 0 ? Access::write : Access::update, sums(by_lookups_object_, ".gradient"));
}

void RowTasks::before_backward(int unit) {
  if (are_fetched() && !defers_all(to_.choices) && unit == touched_at_) fetch_touched();
}

void RowTasks::after_backward(int unit) {
  if (!are_fetched()) return;
  const bool defers = defers_all(to_.choices);
  if (unit == to_.units() - 1 && !defers) {
    // The gradients of these are known: they are zero but for rows that follow. Their updates go evenly beside all of the
    // backward.
    for (const int lookup : lookups_) {
      if (!is_tied(block_of(lookup))) updates_.queue_late(block_of(lookup), kEveryTurn, to_.phase + unit - touched_at_);
    }
  }
  for (const int block : to_.graph.units[unit].gradient_blocks) {
    if (!is_apart(block)) continue;
    if (to_.graph.units[unit].lookup.rows == 0) {
      finish_apart(block);
      if (!defers) updates_.queue(block, kEveryTurn, to_.phase);
    } else if (unit == lookups_.front()) {
      finish();
      if (!defers) update_touched();
    }
  }
}

// The head has added all that it will to a tied block: with what the lookups add, rows that the step's tokens touch follow later.
void RowTasks::finish_apart(int block) {
  const bool rounds = to_.choices.form == StateForm::compact;
  const bool first = by_head_object_ < 0;
  const auto looks_up = [&](int unit) { return block_of(unit) == block; };
  const RowLookup& lookup = to_.graph.units[*std::ranges::find_if(lookups_, looks_up)].lookup;
  const int rows = sums(by_head_object_, ".whole_gradient"), sum = to_.objects().gradient(block, 0),
            waiting = to_.objects().waiting_gradient(block);
  Task& task = to_.add(OpKind::gradient_finish, Lane::update);
  task.op.block = block;
  task.op.work.bytes = (rounds ? 6.0 : 4.0) * static_cast<double>(to_.graph.blocks[block].elements);
  to_.use(task, Role::sum, Access::read, sum);
  if (rounds) to_.use(task, Role::waiting, Access::write, waiting);
  to_.use(task, Role::head_gradients, first ? Access::write : Access::update, rows);
  const Bytes row_bytes = row_elements() / row_node(row_elements()) * static_cast<Bytes>(sizeof(double));
  to_.at_rest(task, Role::row_squares, Access::write, to_.plan.row_norm_buffer, lookup.first * row_bytes,
              lookup.rows * row_bytes);
}

// The gradients of the touched rows, and the blocks' sums of squares with them. What the next step takes rests, the rest does
// not.
void RowTasks::finish() {
  Task& task = add_task(OpKind::gradient_finish, Lane::update);
  task.op.work.bytes = 20.0 * static_cast<double>(step_rows() * row_elements());
  to_.use(task, Role::sum, Access::update, by_lookups_object_);
  if (by_head_object_ >= 0) to_.use(task, Role::head_gradients, Access::read, by_head_object_);
  to_.at_rest(task, Role::row_squares, by_head_object_ >= 0 ? Access::update : Access::write, to_.plan.row_norm_buffer);
  if (defers_all(to_.choices)) {
    to_.at_rest(task, Role::touched_gradients, Access::write, to_.plan.row_gradient_buffer);
    to_.at_rest(task, Role::touched, Access::write, to_.plan.touched_buffer);
  } else {
    touched_gradient_object_ =
        to_.objects().add({.name = {"rows", ".rounded_gradient"},
                           .category = Category::gradients,
                           .staged_category = Category::gradients,
                           .bytes = step_rows() * row_elements() * gradient_bytes_per_element(to_.choices.form)});
    to_.use(task, Role::touched_gradients, Access::write, touched_gradient_object_);
  }
  for (const int unit : lookups_) updates_.write_squares(task, block_of(unit));
}

// Where blocks have been updated without the rows that the step touches: these are read once that is written, so that what lies
// beside them in their windows is as it will stay.
void RowTasks::fetch_touched() {
  updates_.issue_looked_up();
  for (const StateKind kind : kKinds) {
    const Bytes each = bytes_per_element(to_.choices.form, kind);
    touched_object_[static_cast<int>(kind)] =
        each == 0
            ? -1
            : to_.objects().add(
                  {.name = {"rows", name_of_kind(kind)}, .kind = kind, .bytes = step_rows() * row_window(row_elements() * each)});
  }
  for (const Strip& strip : to_.strips) move_touched(Lane::nvme_read, strip, kKinds);
}

void RowTasks::move_touched(Lane lane, const Strip& strip, std::span<const StateKind> kinds) {
  const bool reads = lane == Lane::nvme_read;
  Task& task = add_task(OpKind::move, lane, strip);
  for (const StateKind of : kinds) {
    const int object = touched_object_[static_cast<int>(of)];
    if (object < 0) continue;
    for (const int unit : lookups_) {
      const int home = to_.plan.state_buffer[block_of(unit)][static_cast<int>(of)];
      to_.at_rest(task, reads ? Role::from : Role::to, reads ? Access::read : Access::write, home).kind = of;
    }
    const Bytes each = to_.object(object).bytes / to_.choices.micro_batches, bytes = strip.count * each;
    to_.use(task, reads ? Role::to : Role::from, reads ? Access::write : Access::read, object, strip.first * each, bytes);
    task.op.bytes += bytes;
    task.op.small_requests += strip.count * to_.graph.rows;
  }
}

void RowTasks::update_touched() {
  Task& task = add_task(OpKind::update, Lane::update);
  const Choices& choices = to_.choices;
  task.op.work.bytes = static_cast<double>(step_rows() * row_elements() *
                                           (gradient_bytes_per_element(choices.form) + 2 * bytes_per_element(choices.form)));
  for (const int object : touched_object_) {
    if (object >= 0) to_.use(task, Role::state, Access::update, object);
  }
  to_.use(task, Role::touched_gradients, Access::read, touched_gradient_object_);
  updates_.read_settled_loss(task);
  // The next step begins with the rows' weights, and need not wait for the rest.
  for (const auto kinds : {std::span(kKinds).first(1), std::span(kKinds).subspan(1)}) {
    for (const Strip& strip : to_.strips) move_touched(Lane::nvme_write, strip, kinds);
  }
}

}  // namespace spillway
