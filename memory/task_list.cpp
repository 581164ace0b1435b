#include "memory/task_list.h"

#include <algorithm>
#include <array>
#include <deque>
#include <limits>

#include "memory/error.h"
#include "memory/resident_buffers.h"
#include "memory/task_objects.h"

namespace spillway {
namespace {

class Builder {
 public:
  Builder(const UnitGraph& graph, const Plan& plan, Purpose purpose)
      : graph_(graph), plan_(plan), choices_(plan.choices), purpose_(purpose), objects_(graph, plan, purpose, list_.objects) {
    gathered_.resize(graph.blocks.size());
    for (int unit = 0; unit < units(); ++unit) {
      if (graph.units[unit].lookup.rows > 0) lookups_.push_back(unit);
    }
    if (choices_.fetches_rows)
      touched_at_ = std::max(lookups_.back(), std::min(lookups_.back() + choices_.lookahead, first_sharing_unit(graph) - 1));
    rows_object_.assign(static_cast<std::size_t>(choices_.micro_batches), -1);
    // Backward runs units from the last to the first: the first use of a gradient is that of the last unit.
    gradient_users_.resize(graph.blocks.size());
    for (int unit = static_cast<int>(graph.units.size()) - 1; unit >= 0; --unit) {
      for (const int block : graph.units[unit].gradient_blocks) gradient_users_[block].push_back(unit);
    }
    norm_words_ = norm_words(graph, choices_);
  }

  TaskList step() {
    const int micro_batches = choices_.micro_batches;
    updated_.assign(graph_.blocks.size(), 0);
    if (defers_any(choices_)) queue_pending_updates();
    if (choices_.fetches_rows) {
      for (int mb = 0; mb < micro_batches; ++mb) fetch_rows(mb);
    }
    if (choices_.order == Order::horizontal) {
      for (int mb = 0; mb < micro_batches; ++mb) {
        for (int unit = 0; unit < units(); ++unit) forward(unit, mb, mb);
        for (int unit = units() - 1; unit >= 0; --unit) {
          backward(unit, mb, mb);
          if (mb + 1 == micro_batches) after_backward(unit);
        }
      }
    } else {
      for (int unit = 0; unit < units(); ++unit) forward(unit, 0, micro_batches - 1);
      for (int unit = units() - 1; unit >= 0; --unit) {
        backward(unit, 0, micro_batches - 1);
        after_backward(unit);
      }
    }
    issue_all_updates();
    norm();
    if (choices_.update == UpdateTime::after) {
      for (int block = 0; block < blocks(); ++block) queue_update(queue_, block, Condition::always, phase_);
      issue_all_updates();
    }
    return std::move(list_);
  }

  TaskList flush() {
    for (int block = 0; block < blocks(); ++block) {
      if (defers(choices_, block)) queue_update(queue_, block, Condition::always, phase_);
    }
    issue_all_updates();
    return std::move(list_);
  }

  TaskList evaluation() {
    for (int unit = 0; unit < units(); ++unit) {
      ++phase_;  // a unit's weights are read a few units ahead, not all at the beginning
      gather_ahead(unit, 1);
      forward_task(unit, 0, OpKind::forward);
    }
    Task& task = add(OpKind::loss, Lane::compute);
    control(task, Access::update, plan_.loss_buffer, 0, loss_bytes(1));
    return std::move(list_);
  }

 private:
  int units() const { return static_cast<int>(graph_.units.size()); }
  int blocks() const { return static_cast<int>(graph_.blocks.size()); }

  Task& add(OpKind kind, Lane lane, Tier at = Tier::device) {
    Task& task = list_.tasks.emplace_back();
    task.op.kind = kind;
    task.op.lane = lane;
    task.at = at;
    task.phase = phase_;
    task.first_operand = static_cast<int>(list_.operands.size());
    return task;
  }

  // --- operands ---

  // What units take: the weight as it rests, or as it was last gathered.
  int whole_weight(int block) { return sharding().shards_weights() ? gathered_[block].object : objects_.weight(block); }

  // Of the task that was added last.
  void take(Task& task, const TaskOperand& operand) {
    SPILLWAY_CHECK(&task == &list_.tasks.back(), "a task of {} gets an operand after the next was added", name_of(task.op.kind));
    list_.operands.push_back(operand);
    list_.operands.back().at = task.at;
    ++task.operand_count;
  }
  void use(Task& task, Role role, Access access, int object, Bytes begin, Bytes bytes) {
    take(task,
         {.role = role, .access = access, .kind = list_.objects[object].kind, .object = object, .begin = begin, .bytes = bytes});
  }
  void use(Task& task, Role role, Access access, int object) { use(task, role, access, object, 0, list_.objects[object].bytes); }

  void control(Task& task, Access access, int resident, Bytes begin, Bytes bytes) {
    use(task, Role::control, access, objects_.resident(resident), begin, bytes);
  }

  void scratch(Task& task, Bytes bytes) { take(task, {.role = Role::workspace, .access = Access::write, .bytes = bytes}); }

  void weights(Task& task, const Unit& unit) {
    const bool looks_up = unit.lookup.rows > 0;
    for (std::size_t place = 0; place < unit.blocks.size(); ++place) {
      if (!looks_up || place > 0) {
        use(task, Role::weights, Access::read, whole_weight(unit.blocks[place]));
      } else if (task.op.kind == OpKind::backward) {  // has no use for them
        take(task, {.role = Role::weights});
      } else if (!fetches_rows()) {
        use(task, Role::weights, Access::read, whole_weight(unit.blocks[place]));
      } else if (int& rows = rows_object_[task.op.micro_batch]; rows >= 0) {
        use(task, Role::rows, Access::read, rows);
        rows = -1;  // all of them: the units of other tiles have nothing to do
      } else {
        take(task, {.role = Role::rows});
      }
    }
  }

  // --- lookups ---

  bool fetches_rows() const { return choices_.fetches_rows && purpose_ == Purpose::training; }
  // Another unit's call has copied all rows.
  bool has_nothing_to_do(const Unit& unit, int mb) const {
    return fetches_rows() && unit.lookup.rows > 0 && unit.blocks.size() == 1 && rows_object_[mb] < 0;
  }

  // What the lookups of a micro-batch want, before anything else of the step: each row as the update that waits will leave it.
  void fetch_rows(int mb) {
    const std::int64_t row_elements = this->row_elements();
    const auto rows_of = [&](std::string_view name, Bytes bytes_of_row) {
      return objects_.add({.name = {"rows", name}, .bytes = graph_.rows * bytes_of_row, .micro_batch = mb});
    };
    std::array<int, kStateKinds> fetched{-1, -1, -1, -1};
    const auto fetch = [&](Task& task, StateKind kind, Role role, Bytes each, std::string_view name, const auto& home) {
      for (const int unit : lookups_) at_rest(task, kind, Access::read, home(graph_.units[unit].blocks.front()));
      const int object = rows_of(name, row_window(row_elements * each));
      list_.objects[object].kind = kind;
      use(task, role, Access::write, object);
      task.op.bytes += list_.objects[object].bytes;
      task.op.small_requests += graph_.rows;
      return object;
    };
    int gradient = -1;
    for (const Condition condition : {Condition::always, Condition::pending}) {
      if (condition == Condition::pending && !defers_all(choices_)) break;  // no update waits
      Task& task = add(OpKind::fetch_rows, Lane::nvme_read);
      task.op.condition = condition;
      task.op.micro_batch = mb;
      for (const StateKind kind : kKinds) {
        const Bytes each = bytes_per_element(choices_.form, kind);
        if (each == 0 || (kind == StateKind::weight) != (condition == Condition::always)) continue;
        fetched[static_cast<int>(kind)] = fetch(task, kind, Role::memory, each, name_of_kind(kind),
                                                [&](int block) { return plan_.state_buffer[block][static_cast<int>(kind)]; });
      }
      if (condition == Condition::always || !is_tied(graph_.units[lookups_.front()].blocks.front())) continue;
      gradient = fetch(task, StateKind::weight, Role::gradient, gradient_bytes_per_element(choices_.form), ".gradient",
                       [&](int block) { return plan_.gradient_buffer[block]; });
    }
    Task& task = add(OpKind::update_rows, Lane::update);
    task.op.micro_batch = mb;
    task.op.work.bytes = static_cast<double>(graph_.rows * row_elements *
                                             (gradient_bytes_per_element(choices_.form) + bytes_per_element(choices_.form)));
    for (const StateKind kind : kKinds) {
      const int object = fetched[static_cast<int>(kind)];
      if (object >= 0) use(task, Role::state, Access::update, object);
    }
    if (gradient >= 0) use(task, Role::gradient, Access::read, gradient);
    const int rows = rows_of(".lookup", row_elements * bytes_per_element(choices_.form, StateKind::weight));
    use(task, Role::value, Access::write, rows);
    if (defers_all(choices_)) {
      read_waiting_rows(task);
      read_settled_loss(task);
    }
    rows_object_[mb] = rows;
  }

  std::int64_t step_rows() const { return choices_.micro_batches * graph_.rows; }
  std::int64_t row_elements() const { return graph_.units[lookups_.front()].lookup.row_elements; }

  // A resident buffer where it rests.
  void resident(Task& task, Role role, Access access, int buffer, Bytes begin, Bytes bytes) {
    control(task, access, buffer, begin, bytes);
    list_.operands.back().role = role;
    list_.operands.back().at = plan_.resident[buffer].tier;
  }
  void resident(Task& task, Role role, Access access, int buffer) {
    resident(task, role, access, buffer, 0, plan_.resident[buffer].bytes);
  }
  void at_rest(Task& task, StateKind kind, Access access, int buffer) {
    resident(task, Role::nvme, access, buffer);
    list_.operands.back().kind = kind;
  }

  bool is_apart(int block) const { return keeps_rows_apart(graph_, choices_, block); }
  // Where rows are apart, their blocks' gradients are those of the head that shares them, if there is one.
  bool is_tied(int block) const { return graph_.units[gradient_users_[block].front()].lookup.rows == 0; }

  void read_waiting_rows(Task& task) {
    resident(task, Role::value, Access::read, plan_.row_gradient_buffer);
    resident(task, Role::value, Access::read, plan_.touched_buffer);
  }

  int sums_of_rows(int& object, std::string_view name) {
    if (object < 0) {
      object = objects_.add({.name = {"rows", name}, .category = Category::gradients, .staged_category = Category::gradients,
                           .bytes = step_rows() * row_elements() * static_cast<Bytes>(sizeof(float))});
    }
    return object;
  }

  void add_rows(const Unit& lookup, int mb) {
    Task& task = add(OpKind::add_rows, Lane::update);
    task.op.micro_batch = mb;
    task.op.work.bytes = 10.0 * static_cast<double>(graph_.rows * row_elements());
    use(task, Role::value, Access::read, objects_.value(lookup.backward.front().value, mb));
    use(task, Role::gradient, mb == 0 ? Access::write : Access::update, sums_of_rows(row_sums_object_, ".gradient"));
  }

  // The head has added all that it will to a tied block: with what the lookups add, rows that the
  // step's tokens touch follow later.
  void finish_apart(int block) {
    const bool rounds = choices_.form == StateForm::compact;
    const bool first = whole_rows_object_ < 0;
    const auto looks_up = [&](int unit) { return graph_.units[unit].blocks.front() == block; };
    const RowLookup& lookup = graph_.units[*std::find_if(lookups_.begin(), lookups_.end(), looks_up)].lookup;
    const int rows = sums_of_rows(whole_rows_object_, ".whole_gradient"), sum = objects_.gradient(block, 0),
              waiting = objects_.waiting_gradient(block);
    Task& task = add(OpKind::gradient_finish, Lane::update);
    task.op.block = block;
    task.op.work.bytes = (rounds ? 6.0 : 4.0) * static_cast<double>(graph_.blocks[block].elements);
    use(task, Role::gradient, Access::read, sum);
    if (rounds) use(task, Role::gradient, Access::write, waiting);
    use(task, Role::value, first ? Access::write : Access::update, rows);
    const Bytes row_bytes = row_elements() / row_node(row_elements()) * static_cast<Bytes>(sizeof(double));
    resident(task, Role::value, Access::write, plan_.row_norm_buffer, lookup.first * row_bytes, lookup.rows * row_bytes);
  }

  // The gradients of the touched rows, and the blocks' sums of squares with them. What the next step
  // takes rests, the rest does not.
  void finish_rows() {
    Task& task = add(OpKind::finish_rows, Lane::update);
    task.op.work.bytes = 20.0 * static_cast<double>(step_rows() * row_elements());
    use(task, Role::gradient, Access::update, row_sums_object_);
    if (whole_rows_object_ >= 0) use(task, Role::gradient, Access::read, whole_rows_object_);
    resident(task, Role::value, whole_rows_object_ >= 0 ? Access::update : Access::write, plan_.row_norm_buffer);
    if (defers_all(choices_)) {
      resident(task, Role::value, Access::write, plan_.row_gradient_buffer);
      resident(task, Role::value, Access::write, plan_.touched_buffer);
    } else {
      touched_gradient_object_ =
          objects_.add({.name = {"rows", ".rounded_gradient"},
                        .category = Category::gradients,
                        .staged_category = Category::gradients,
                        .bytes = step_rows() * row_elements() * gradient_bytes_per_element(choices_.form)});
      use(task, Role::value, Access::write, touched_gradient_object_);
    }
    for (const int unit : lookups_) write_squares(task, graph_.units[unit].blocks.front());
  }

  // Where blocks have been updated without the rows that the step touches: these are read once that is written, so that what lies
  // beside them in their windows is as it will stay.
  void fetch_touched() {
    issue_updates(late_, late_.size(), std::numeric_limits<int>::max());
    while (std::any_of(queue_.begin(), queue_.end(), [&](const Chunk& chunk) { return graph_.blocks[chunk.block].looked_up; })) {
      issue_updates(queue_, 1, phase_);
    }
    for (const StateKind kind : kKinds) {
      const Bytes each = bytes_per_element(choices_.form, kind);
      touched_object_[static_cast<int>(kind)] = each == 0
                                                    ? -1
                                                    : objects_.add({.name = {"rows", name_of_kind(kind)},
                                                                    .kind = kind,
                                                                    .bytes = step_rows() * row_window(row_elements() * each)});
    }
    for (int mb = 0; mb < choices_.micro_batches; ++mb) move_touched(OpKind::fetch_rows, mb, kKinds);
  }
  void move_touched(OpKind kind, int mb, std::span<const StateKind> kinds) {
    const bool reads = kind == OpKind::fetch_rows;
    Task& task = add(kind, reads ? Lane::nvme_read : Lane::nvme_write);
    task.op.micro_batch = mb;
    for (const StateKind of : kinds) {
      const int object = touched_object_[static_cast<int>(of)];
      if (object < 0) continue;
      for (const int unit : lookups_)
        at_rest(task, of, reads ? Access::read : Access::write,
                plan_.state_buffer[graph_.units[unit].blocks.front()][static_cast<int>(of)]);
      const Bytes bytes = list_.objects[object].bytes / choices_.micro_batches;
      use(task, Role::memory, reads ? Access::write : Access::read, object, mb * bytes, bytes);
      task.op.bytes += bytes;
      task.op.small_requests += graph_.rows;
    }
  }
  void update_touched() {
    Task& task = add(OpKind::update_touched, Lane::update);
    task.op.work.bytes = static_cast<double>(step_rows() * row_elements() *
                                             (gradient_bytes_per_element(choices_.form) + 2 * bytes_per_element(choices_.form)));
    for (const int object : touched_object_) {
      if (object >= 0) use(task, Role::state, Access::update, object);
    }
    use(task, Role::value, Access::read, touched_gradient_object_);
    read_settled_loss(task);
    // The next step begins with the rows' weights, and need not wait for the rest.
    for (const auto kinds : {std::span(kKinds).first(1), std::span(kKinds).subspan(1)}) {
      for (int mb = 0; mb < choices_.micro_batches; ++mb) move_touched(OpKind::write_rows, mb, kinds);
    }
  }

  // --- tasks of the network ---

  const Sharding& sharding() const { return choices_.sharding; }

  // Where weights are sharded, those of a unit are gathered as far ahead as others are read. A block whose last use is no farther
  // back is still there.
  void gather_ahead(int unit, int direction) {
    if (!sharding().shards_weights()) return;
    for (int ahead = 0; ahead <= choices_.lookahead; ++ahead) {
      const int wanted = unit + ahead * direction;
      if (wanted < 0 || wanted >= units()) return;
      if (direction > 0 && purpose_ == Purpose::training && graph_.units[wanted].role == ForwardRole::merged_into_backward)
        continue;
      const Unit& of = graph_.units[wanted];
      const std::size_t unread = direction < 0 && of.lookup.rows > 0 ? 1 : 0;  // the backward of a lookup takes no weights
      for (std::size_t place = unread; place < of.blocks.size(); ++place) gather_for(of.blocks[place], wanted, phase_ + ahead);
    }
  }
  void gather_for(int block, int unit, int phase) {
    Gathered& gathered = gathered_[block];
    if (gathered.object < 0 || gathered.phase < phase_ - 1 - choices_.lookahead) {
      const Bytes bytes = shard_elements(graph_.blocks[block].elements, sharding()) * sharding().group *
                          bytes_per_element(choices_.form, StateKind::weight);
      gathered.object = objects_.add({.name = {graph_.blocks[block].name, ".gathered"}, .category = Category::parameters,
                                    .staged_category = Category::parameters, .bytes = bytes, .block = block});
      const int part = objects_.weight(block);
      Task& task = add(OpKind::gather, Lane::network);
      task.op.unit = unit;
      task.op.block = block;
      task.op.bytes = bytes_of_collective(bytes, sharding().group);
      use(task, Role::state, Access::read, part);
      use(task, Role::weights, Access::write, gathered.object);
    }
    gathered.phase = std::max(gathered.phase, phase);
  }

  // Where the optimizer's state is sharded and weights are whole, each rank has updated its part of them.
  void gather_updated(int block, Condition condition, int phase) {
    if (!sharding().shards_optimizer() || sharding().shards_weights()) return;
    const int whole = objects_.weight(block);
    Task& task = add(OpKind::gather, Lane::network);
    task.phase = phase;
    task.op.block = block;
    task.op.condition = condition;
    task.op.bytes = bytes_of_collective(list_.objects[whole].bytes, sharding().group);
    use(task, Role::state, Access::update, whole);
  }

  void reduce_gradient(int block) {
    if (sharding().ranks == 1) return;
    const int sum = objects_.gradient(block, 0), reduced = objects_.reduced_gradient(block);
    Task& task = add(OpKind::reduce, Lane::network);
    task.op.block = block;
    task.op.bytes = bytes_of_sum(graph_.blocks[block].elements, sharding());
    use(task, Role::gradient, reduced == sum ? Access::update : Access::read, sum);
    if (reduced != sum) use(list_.tasks.back(), Role::gradient, Access::write, reduced);
  }

  // Of words that every rank has a sum of its own of.
  void reduce_control(int resident, Bytes bytes) {
    if (sharding().ranks == 1) return;
    Task& task = add(OpKind::reduce, Lane::network);
    task.op.bytes = 2 * bytes_of_collective(bytes, sharding().ranks);
    control(task, Access::update, resident, 0, bytes);
  }

  // --- tasks of compute ---

  void forward_task(int index, int mb, OpKind kind) {
    const Unit& unit = graph_.units[index];
    Task& task = add(kind, Lane::compute);
    task.op.unit = index;
    task.op.micro_batch = mb;
    task.op.work = unit.forward_work;
    for (const ValueUse& wanted : unit.forward) {
      const bool is_saved = unit.saves(wanted.value);
      // Each pass writes what the other does not keep: the forward of a recomputed unit has no use for its saved values beyond
      // the call, and the second forward none for the unit's outputs.
      if (kind == OpKind::recompute && wanted.access != Access::read && !is_saved) {
        take(task, {.role = Role::value, .access = wanted.access});
      } else if (kind == OpKind::forward && is_saved && !keeps_saved(choices_, index, purpose_ == Purpose::evaluation)) {
        const Bytes bytes = unit.saved_piece > 0 ? unit.saved_piece : graph_.values[wanted.value].bytes;
        take(task, {.role = Role::value, .access = Access::write, .bytes = bytes});
      } else {
        use(task, Role::value, wanted.access, objects_.value(wanted.value, mb));
      }
    }
    weights(task, unit);
    scratch(task, unit.forward_workspace);
    if (index == units() - 1 && kind == OpKind::forward) loss_of(task, mb);
  }

  void forward(int index, int first_mb, int last_mb) {
    ++phase_;
    issue_updates(queue_, queue_.size(), phase_);
    issue_updates(late_, late_.size(), phase_);
    if (graph_.units[index].role == ForwardRole::merged_into_backward) return;
    gather_ahead(index, 1);
    const int last_phase = phase_ + choices_.update_spread;
    const int tasks = last_mb - first_mb + 1;
    const std::size_t quota = share_of_queue(last_phase, tasks), late_quota = share_of_late(tasks);
    for (int mb = first_mb; mb <= last_mb; ++mb) {
      if (!has_nothing_to_do(graph_.units[index], mb)) forward_task(index, mb, OpKind::forward);
      issue_updates(queue_, quota, last_phase);
      issue_updates(late_, late_quota, std::numeric_limits<int>::max());
    }
  }

  void backward(int index, int first_mb, int last_mb) {
    ++phase_;
    if (index == units() - 1 && graph_.units[index].role == ForwardRole::computes) loss(last_mb);
    gather_ahead(index, -1);
    const Unit& unit = graph_.units[index];
    const int tasks = last_mb - first_mb + 1;
    const std::size_t quota = share_of_queue(phase_, tasks), late_quota = share_of_late(tasks);
    const bool apart = choices_.fetches_rows && unit.lookup.rows > 0;
    if (choices_.fetches_rows && !defers_all(choices_) && index == touched_at_ && last_mb + 1 == choices_.micro_batches)
      fetch_touched();
    for (int mb = first_mb; mb <= last_mb; ++mb) {
      if (apart && index == lookups_.front()) add_rows(unit, mb);
      if (apart && unit.gradient_blocks.size() == 1) continue;
      const bool recomputes = !keeps_saved(choices_, index, false) && !unit.saved.empty(),
                 by_itself = recomputes && unit.saved_piece > 0;
      if (recomputes && !by_itself) forward_task(index, mb, OpKind::recompute);
      Task& task = add(OpKind::backward, Lane::compute);
      task.op.unit = index;
      task.op.micro_batch = mb;
      task.op.work = unit.backward_work;
      if (by_itself) task.op.work += unit.forward_work;
      for (const ValueUse& wanted : unit.backward) {
        if (by_itself && unit.saves(wanted.value)) {
          take(task, {.role = Role::value, .access = Access::write, .bytes = unit.saved_piece});
        } else {
          use(task, Role::value, wanted.access, objects_.value(wanted.value, mb));
        }
      }
      weights(task, unit);
      for (const int block : unit.gradient_blocks) {
        if (apart && is_apart(block)) {
          take(list_.tasks.back(), {.role = Role::gradient});
          continue;
        }
        const auto& users = gradient_users_[block];
        const int place = static_cast<int>(std::find(users.begin(), users.end(), index) - users.begin());
        const int object = objects_.gradient(block, place);
        use(list_.tasks.back(), Role::gradient, mb == 0 ? Access::write : Access::update, object);
      }
      scratch(list_.tasks.back(), unit.backward_workspace);
      if (index == units() - 1 && unit.role == ForwardRole::merged_into_backward) loss_of(list_.tasks.back(), mb);
      if (choices_.update != UpdateTime::in_backward) continue;
      issue_updates(queue_, quota, phase_);
      issue_updates(late_, late_quota, std::numeric_limits<int>::max());
    }
    if (index == units() - 1 && unit.role == ForwardRole::merged_into_backward) loss(last_mb);
  }

  // The last unit completes the loss of a micro-batch.
  void loss_of(Task& task, int mb) {
    control(task, Access::write, plan_.loss_buffer, mb * kMicroBatchWordsBytes, kMicroBatchWordsBytes);
  }

  // The loss of the step is known once the last micro-batch has it; no update comes before.
  void loss(int last_mb) {
    if (last_mb + 1 != choices_.micro_batches) return;
    reduce_control(plan_.loss_buffer, choices_.micro_batches * kMicroBatchWordsBytes);
    Task& task = add(OpKind::loss, Lane::compute);
    control(task, Access::update, plan_.loss_buffer, 0, loss_bytes(choices_.micro_batches));
  }

  // --- tasks of the optimizer ---

  // Forward units run in order, one phase each: each block's update goes with the first unit that uses it. Where a lookup has its
  // rows without the block, that is the head that shares it, or at last the end of the forward.
  void queue_pending_updates() {
    for (int unit = 0; unit < units(); ++unit) {
      for (const int block : graph_.units[unit].blocks) {
        const bool late = is_apart(block);
        if (!defers(choices_, block) || updated_[block] || (late && graph_.units[unit].lookup.rows > 0)) continue;
        queue_update(late ? late_ : queue_, block, Condition::pending, unit + 1);
      }
    }
    for (int block = 0; block < blocks(); ++block) {
      if (defers(choices_, block) && !updated_[block]) queue_update(late_, block, Condition::pending, units());
    }
  }

  // Pieces to issue after each of a unit's tasks so that what is queued up to a phase is through after `update_spread` units:
  // updates and their moves then run beside compute at an even pace, and what compute reads is not stuck behind a burst of them.
  std::size_t share_of_queue(int last_phase, int tasks) const {
    std::size_t queued = 0;
    while (queued < queue_.size() && queue_[queued].phase <= last_phase) ++queued;
    if (choices_.update_spread == 0) return queued;
    const auto over = static_cast<std::size_t>(choices_.update_spread) * static_cast<std::size_t>(tasks);
    return (queued + over - 1) / over;
  }

  // Nothing wants the late ones before they are due: they go evenly beside all that comes before.
  std::size_t share_of_late(int tasks) const {
    if (late_.empty() || choices_.update_spread == 0) return 0;
    const auto over = static_cast<std::size_t>(std::max(1, late_.back().phase - phase_)) * static_cast<std::size_t>(tasks);
    return (late_.size() + over - 1) / over;
  }

  void after_backward(int unit) {
    if (unit == units() - 1 && choices_.fetches_rows && !defers_all(choices_)) {
      // The gradients of these are known: they are zero but for rows that follow. Their updates go
      // evenly beside all of the backward.
      for (const int lookup : lookups_) {
        const int block = graph_.units[lookup].blocks.front();
        if (!is_tied(block)) queue_update(late_, block, Condition::always, phase_ + unit - touched_at_);
      }
    }
    for (const int block : graph_.units[unit].gradient_blocks) {
      const auto& users = gradient_users_[block];
      if (is_apart(block)) {
        if (graph_.units[unit].lookup.rows == 0) {
          finish_apart(block);
          if (!defers_all(choices_)) queue_update(queue_, block, Condition::always, phase_);
        } else if (unit == lookups_.front()) {
          finish_rows();
          if (!defers_all(choices_)) update_touched();
        }
        continue;
      }
      if (users.back() != unit) continue;  // another use of the tensor is still to come
      for (std::size_t use_index = 1; use_index < users.size(); ++use_index) {
        const int first = objects_.gradient(block, 0), other = objects_.gradient(block, static_cast<int>(use_index));
        Task& task = add(OpKind::gradient_add, lane_of_gradients(choices_.chain));
        task.op.block = block;
        task.op.work.bytes = 12.0 * static_cast<double>(graph_.blocks[block].elements);
        use(task, Role::gradient, Access::update, first);
        use(list_.tasks.back(), Role::gradient, Access::read, other);
      }
      reduce_gradient(block);
      if (!squares_with_update(graph_, choices_, block)) finish_gradient(block);
      if (choices_.update == UpdateTime::in_backward && !defers(choices_, block))
        queue_update(queue_, block, Condition::always, phase_);
    }
    if (choices_.update_spread == 0) issue_all_updates();
  }

  void finish_gradient(int block) {
    const int sum = objects_.reduced_gradient(block), waiting = objects_.waiting_gradient(block);
    const bool rounds = choices_.form == StateForm::compact;
    Task& task = add(OpKind::gradient_finish, lane_of_gradients(choices_.chain));
    task.op.block = block;
    const std::int64_t summed = elements_at_rest(sharding(), graph_.blocks[block], StateKind::m);
    task.op.work.bytes = (rounds ? 6.0 : 4.0) * static_cast<double>(summed);
    use(task, Role::gradient, Access::read, sum);
    if (rounds) use(task, Role::gradient, Access::write, waiting);
    write_squares(task, block);
  }
  void use_norm_words(Task& task, Access access, std::int64_t begin, std::int64_t end) {
    constexpr Bytes word = sizeof(double);
    control(task, access, plan_.norm_buffer, begin * word, (end - begin) * word);
  }
  void write_squares(Task& task, int block) { use_norm_words(task, Access::write, norm_words_[block], norm_words_[block + 1]); }

  void norm() {
    const std::int64_t end = norm_words_.back();
    if (sharding().shards_optimizer()) reduce_control(plan_.norm_buffer, end * static_cast<Bytes>(sizeof(double)));
    Task& task = add(OpKind::norm, lane_of_gradients(choices_.chain));
    use_norm_words(task, Access::read, 0, end);
    control(task, Access::write, plan_.factor_buffer, 0, 2 * static_cast<Bytes>(sizeof(double)));
  }

  // A piece of a block's update. The phase is that of the unit whose use of the block it goes with, also where the piece is run
  // among the tasks of other units.
  struct Chunk {
    int block;
    std::int64_t begin, end;
    Condition condition;
    int phase;
  };

  void queue_update(std::deque<Chunk>& queue, int block, Condition condition, int phase) {
    if (!updated_.empty()) updated_[block] = 1;
    const std::int64_t elements = elements_at_rest(sharding(), graph_.blocks[block], StateKind::m);
    const int moments = plan_.state_buffer[block][static_cast<int>(StateKind::m)];
    const bool rests_there = plan_.resident[moments].tier == choices_.update_tier;
    const std::int64_t size = rests_there ? elements : choices_.update_chunk;
    for (std::int64_t begin = 0; begin < elements; begin += size)
      queue.push_back({block, begin, std::min(begin + size, elements), condition, phase});
  }

  // Issues up to `most` queued pieces, of phases up to `last_phase`.
  void issue_updates(std::deque<Chunk>& queue, std::size_t most, int last_phase) {
    for (; most > 0 && !queue.empty() && queue.front().phase <= last_phase; --most) {
      // A late piece that comes early is not held for the unit that it is due with.
      if (&queue == &late_) queue.front().phase = phase_;
      update(queue.front());
      queue.pop_front();
    }
  }
  void issue_all_updates() { issue_updates(queue_, queue_.size(), std::numeric_limits<int>::max()); }

  void update(const Chunk& chunk) {
    const int weight_of_block = objects_.weight(chunk.block);
    const int gradient_of_block = is_apart(chunk.block) && !is_tied(chunk.block) ? -1 : objects_.waiting_gradient(chunk.block);
    const std::int64_t elements = chunk.end - chunk.begin;
    std::vector<int> moved;
    for (const StateKind kind : kKinds) {
      if (kind == StateKind::weight || bytes_per_element(choices_.form, kind) == 0) continue;
      moved.push_back(objects_.state(chunk.block, kind, chunk.begin, elements));
    }
    Task& task = add(OpKind::update, lane_of_updates(choices_), choices_.update_tier);
    if (task.op.lane == Lane::update) task.phase = chunk.phase;
    task.op.block = chunk.block;
    task.op.condition = chunk.condition;
    task.op.element_begin = chunk.begin;
    task.op.element_end = chunk.end;
    const Bytes weight_bytes = bytes_per_element(choices_.form, StateKind::weight),
                gradient_bytes = gradient_bytes_per_element(choices_.form),
                each = gradient_bytes + 2 * bytes_per_element(choices_.form);
    task.op.work.bytes = static_cast<double>(each * elements);
    use(task, Role::state, Access::update, weight_of_block, chunk.begin * weight_bytes, elements * weight_bytes);
    for (const int object : moved) use(task, Role::state, Access::update, object);
    const bool takes_squares = squares_with_update(graph_, choices_, chunk.block);
    const std::int64_t block_elements = elements_at_rest(sharding(), graph_.blocks[chunk.block], StateKind::m);
    if (gradient_of_block >= 0)
      use(task, Role::gradient, Access::read, gradient_of_block, chunk.begin * gradient_bytes, elements * gradient_bytes);
    if (takes_squares && elements < block_elements)
      use_norm_words(task, Access::update, norm_words_.back(), norm_words_.back() + kSquareNodesFromBegin);
    if (takes_squares && chunk.end == block_elements) write_squares(task, chunk.block);
    if (is_apart(chunk.block) && defers_all(choices_)) read_waiting_rows(task);
    read_settled_loss(task);
    if (chunk.end == block_elements) gather_updated(chunk.block, chunk.condition, chunk.phase);
  }

  // Whether the loss of the step that the gradients are of lets them be applied, and what they are scaled by.
  void read_settled_loss(Task& task) {
    control(task, Access::read, plan_.loss_buffer, choices_.micro_batches * kMicroBatchWordsBytes, sizeof(double));
    // In the backward the factor is not known yet: it is 1, or the step is run again with the factor known.
    if (choices_.update != UpdateTime::in_backward)
      control(task, Access::read, plan_.factor_buffer, 0, 2 * static_cast<Bytes>(sizeof(double)));
  }

  const UnitGraph& graph_;
  const Plan& plan_;
  const Choices& choices_;
  TaskList list_;
  const Purpose purpose_;
  TaskObjects objects_;
  int phase_ = 0;
  std::vector<int> lookups_;                       // units with one
  // The unit before whose backward touched rows are fetched: in time for the lookups', and after that of all sharing heads.
  int touched_at_ = -1;
  int whole_rows_object_ = -1, row_sums_object_ = -1;  // fp32 [N, row_elements]: what the head added to the rows, and the lookups
  int touched_gradient_object_ = -1;               // [N, row_elements]: both, as the update takes them
  std::array<int, kStateKinds> touched_object_{};  // [N, window]: the state of those rows
  std::vector<int> rows_object_;                   // a micro-batch: its rows for the lookup that takes them first, else -1
  struct Gathered {
    int object = -1;
    int phase = 0;  // of the last use that it is there for
  };
  std::vector<Gathered> gathered_;                 // a block whose weights are sharded
  std::vector<std::vector<int>> gradient_users_;   // units that add to a block's gradient, in the order of the backward
  std::vector<std::int64_t> norm_words_;           // where a block's begin; at last the open nodes
  std::deque<Chunk> queue_;                        // updates that are due, by phase
  std::deque<Chunk> late_;                         // of blocks that are looked up, where nothing else waits for them
  std::vector<char> updated_;                      // blocks whose update of the step has been issued
};

}  // namespace

TaskList step_tasks(const UnitGraph& graph, const Plan& plan) { return Builder(graph, plan, Purpose::training).step(); }
TaskList flush_tasks(const UnitGraph& graph, const Plan& plan) { return Builder(graph, plan, Purpose::training).flush(); }
TaskList evaluation_tasks(const UnitGraph& graph, const Plan& plan) {
  return Builder(graph, plan, Purpose::evaluation).evaluation();
}

}  // namespace spillway
