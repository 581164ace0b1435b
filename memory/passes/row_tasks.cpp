#include "memory/passes/row_tasks.h"

#include <algorithm>

namespace spillway {
namespace {

// Rows are many small requests, which take their time: touched ones are fetched so many units before their lookup's backward.
constexpr int kUnitsAhead = 3;

}  // namespace

RowTasks::RowTasks(TaskWriter& to, UpdateTasks& updates) : to_(to), updates_(updates) {
  if (!are_fetched()) return;
  for (int unit = 0; unit < to.units(); ++unit) {
    if (to.graph.units[unit].lookup.rows > 0) lookups_.push_back(unit);
  }
  const int ahead = to.choices.ahead > 0 ? kUnitsAhead : 0;
  touched_at_ = std::max(lookups_.back(), std::min(lookups_.back() + ahead, first_sharing_unit(to.graph) - 1));
  rows_object_.assign(to.strips.size(), -1);
}

Task& RowTasks::add_task(OpKind kind, Lane lane, const Strip& strip) {
  Task& task = to_.add(kind, lane);
  task.op.index = Index::rows;
  task.op.strip = strip;
  return task;
}

void RowTasks::fetch(const Strip& strip) {
  const Choices& choices = to_.choices;
  const std::int64_t rows = strip.count * to_.graph.rows;
  const auto rows_of = [&](std::string_view name, StateKind kind, Bytes bytes_of_row) {
    return to_.objects().add({.name = {"rows", name}, .kind = kind, .bytes = rows * bytes_of_row, .micro_batch = strip.first});
  };
  std::vector<int> fetched;
  const auto fetch = [&](Task& task, StateKind kind, Role role, Bytes each, std::string_view name, const auto& home) {
    for (const int unit : lookups_) to_.at_rest(task, Role::from, Access::read, home(block_of(unit))).kind = kind;
    const int object = rows_of(name, kind, row_window(row_elements() * each));
    to_.use(task, role, Access::write, object);
    task.op.bytes += to_.object(object).bytes;
    task.op.small_requests += rows;
    return object;
  };
  int gradient = -1;
  for (const TurnSet when : {kEveryTurn, kWaitingTurn}) {
    if (when == kWaitingTurn && !defers_all(choices)) break;  // no update waits
    Task& task = add_task(OpKind::move, Lane::nvme_read, strip);
    task.op.when = when;
    for (const StateArray& array : state()) {
      if ((array.kind == StateKind::weight) != (when == kEveryTurn)) continue;
      fetched.push_back(fetch(task, array.kind, Role::to, array.each(), suffix_of(array.kind),
                              [&](int block) { return to_.plan.blocks[block].find(array.kind)->buffer; }));
    }
    if (when == kEveryTurn || !is_tied(block_of(lookups_.front()))) continue;
    gradient = fetch(task, StateKind::weight, Role::waiting, gradient_bytes_per_element(choices.form), ".gradient",
                     [&](int block) { return to_.plan.blocks[block].waiting_gradient; });
  }
  Task& task = add_task(OpKind::update, Lane::update, strip);
  task.op.work.bytes =
      static_cast<double>(rows * row_elements() * (gradient_bytes_per_element(choices.form) + bytes_per_element(state())));
  for (const int object : fetched) to_.use(task, Role::state, Access::update, object);
  if (gradient >= 0) to_.use(task, Role::waiting, Access::read, gradient);
  const int taken = rows_of(".lookup", StateKind::weight, row_elements() * state().front().each());
  to_.use(task, Role::looked_up, Access::write, taken);
  if (defers_all(choices)) {
    to_.at_rest(task, Role::touched_gradients, Access::read, to_.plan.row_gradient_buffer);
    to_.at_rest(task, Role::touched, Access::read, to_.plan.touched_buffer);
    updates_.read_verdict(task);
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
      if (!is_tied(block_of(lookup))) updates_.queue_lookup(block_of(lookup), kEveryTurn, to_.phase + unit - touched_at_);
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
            waiting = to_.objects().gradient_for_update(block);
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
  for (const StateArray& array : state()) {
    const Bytes bytes = step_rows() * row_window(row_elements() * array.each());
    touched_objects_.push_back(to_.objects().add({.name = {"rows", suffix_of(array.kind)}, .kind = array.kind, .bytes = bytes}));
  }
  for (const Strip& strip : to_.strips) move_touched(Lane::nvme_read, strip, touched_objects_);
}

void RowTasks::move_touched(Lane lane, const Strip& strip, std::span<const int> objects) {
  const bool reads = lane == Lane::nvme_read;
  Task& task = add_task(OpKind::move, lane, strip);
  for (const int object : objects) {
    const StateKind of = to_.object(object).kind;
    for (const int unit : lookups_) {
      const int home = to_.plan.blocks[block_of(unit)].find(of)->buffer;
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
                                           (gradient_bytes_per_element(choices.form) + 2 * bytes_per_element(state())));
  for (const int object : touched_objects_) to_.use(task, Role::state, Access::update, object);
  to_.use(task, Role::touched_gradients, Access::read, touched_gradient_object_);
  updates_.read_verdict(task);
  // The next step begins with the rows' weights, and need not wait for the rest.
  const std::span<const int> objects(touched_objects_);
  for (const auto part : {objects.first(1), objects.subspan(1)}) {
    for (const Strip& strip : to_.strips) move_touched(Lane::nvme_write, strip, part);
  }
}

}  // namespace spillway
