#include "memory/passes/task_list.h"

#include <algorithm>
#include <utility>

#include "memory/passes/network_tasks.h"
#include "memory/passes/task_writer.h"
#include "memory/passes/update_tasks.h"

namespace spillway {
namespace {

// Writes the tasks of compute, strip after strip through unit after unit, and has the others add theirs among them.
class Builder {
 public:
  Builder(const UnitGraph& graph, const Plan& plan, Purpose purpose) : to_(graph, plan, purpose) {}

  TaskList step() {
    if (defers_any(to_.choices)) updates_.queue_waiting();
    if (!defers_all(to_.choices)) commit();
    for (int unit = 0; unit < to_.units(); ++unit) forward(unit);
    if (defers_all(to_.choices)) commit();
    for (int unit = to_.units() - 1; unit >= 0; --unit) {
      if (!unit_of(unit).goes_back()) continue;
      backward(unit);
      after_backward(unit);
    }
    updates_.issue_all();
    updates_.norm();
    if (to_.choices.update == UpdateTime::after) {
      for (int block = 0; block < to_.blocks(); ++block) {
        if (!to_.graph.blocks[static_cast<std::size_t>(block)].frozen) updates_.queue(block, to_.last_turn, to_.phase);
      }
      updates_.issue_all();
    }
    return to_.take_list();
  }

  TaskList evaluation() {
    for (int unit = 0; unit < to_.units(); ++unit) {
      ++to_.phase;  // a unit's weights are read a few units ahead, not all at the beginning
      network_.gather_ahead(unit, 1);
      forward_task(unit, {});
    }
    Task& task = to_.add(OpKind::loss, Lane::compute);
    to_.words(task, Role::losses, Access::update, to_.plan.loss_buffer, 0, loss_bytes(1));
    return to_.take_list();
  }

 private:
  const Unit& unit_of(int index) const { return to_.graph.units[static_cast<std::size_t>(index)]; }
  bool keeps(int index) const { return keeps_saved(to_.choices, index, to_.purpose == Purpose::evaluation); }
  // True when the unit's backward makes its saved values itself, a piece at a time.
  bool makes_pieces(int index) const { return !keeps(index) && unit_of(index).saved_piece > 0; }

  // Adds the commit of the state as the step before leaves it: behind all updates of that step, before any of this one's.
  void commit() {
    if (!makes_durable(to_.choices)) return;
    Task& task = to_.add(OpKind::commit, Lane::commit);
    task.op.when = kFirstTurn | kCommitAlone;
    for (int block = 0; block < to_.blocks(); ++block) {
      if (to_.graph.blocks[static_cast<std::size_t>(block)].frozen) continue;
      for (const RestingArray& array : to_.plan.blocks[static_cast<std::size_t>(block)].state) {
        const Buffer& buffer = to_.plan.resident[array.buffer];
        if (in_memory(buffer.tier)) task.op.bytes += buffer.bytes;
        to_.at_rest(task, Role::state, Access::read, array.buffer);
      }
    }
  }

  Task& add_pass(OpKind kind, int index, const Strip& strip, Work work) {
    Task& task = to_.add(kind, Lane::compute);
    task.op.unit = index;
    task.op.strip = strip;
    task.op.work = scaled(work, strip.count);
    return task;
  }

  void weights(Task& task, const Unit& unit) {
    for (std::size_t place = 0; place < unit.blocks.size(); ++place) {
      if (unit.looks_up && place == 0 && task.op.kind == OpKind::backward) {  // the backward of a lookup does not read them
        to_.take(task, {.role = Role::weights});
      } else {
        to_.use(task, Role::weights, Access::read, network_.whole_weight(unit.blocks[place]));
      }
    }
  }

  // Adds the words that the last unit writes the losses of its micro-batches to: all of them, as the turn decides which.
  void losses(Task& task) {
    to_.words(task, Role::losses, Access::write, to_.plan.loss_buffer, 0, to_.choices.micro_batches * kMicroBatchWordsBytes);
  }

  void forward_task(int index, const Strip& strip) {
    const Unit& unit = unit_of(index);
    Task& task = add_pass(OpKind::forward, index, strip, unit.forward_work);
    for (const ValueUse& wanted : unit.forward) {
      if (unit.saves(wanted.value) && !keeps(index)) {  // no use beyond the call
        const Bytes bytes = unit.saved_piece > 0 ? unit.saved_piece : to_.graph.values[wanted.value].bytes;
        to_.take(task, {.role = Role::value, .access = Access::write, .bytes = bytes});
      } else {
        to_.use(task, Role::value, wanted.access, to_.objects().value(wanted.value, strip));
      }
    }
    weights(task, unit);
    to_.scratch(task, unit.forward_workspace);
    if (index == to_.units() - 1) losses(task);
  }

  // The object of a saved value that a backward makes again; it has room for one micro-batch.
  int made_again(int index, int value, const Strip& strip) {
    const auto found = std::ranges::find(made_again_, value, &std::pair<int, int>::first);
    if (found != made_again_.end()) return found->second;
    const Value& of = to_.graph.values[static_cast<std::size_t>(value)];
    const int object = to_.objects().add({.name = {of.name},
                                          .category = Category::activations,
                                          .staged_category = Category::activations,
                                          .bytes = of.bytes,
                                          .unit = index,
                                          .micro_batch = strip.first});
    made_again_.emplace_back(value, object);
    return object;
  }

  void backward_task(int index, const Strip& strip) {
    const Unit& unit = unit_of(index);
    const bool again = recomputes(to_.graph, to_.choices, index), in_pieces = makes_pieces(index);
    Work work = unit.backward_work;
    if (again || in_pieces) work += unit.forward_work;
    Task& task = add_pass(OpKind::backward, index, strip, work);
    made_again_.clear();
    for (const ValueUse& wanted : again ? unit.forward : std::vector<ValueUse>()) {
      if (unit.saves(wanted.value)) {
        to_.use(task, Role::value, wanted.access, made_again(index, wanted.value, strip));
      } else if (wanted.access != Access::read) {  // the first forward has written it
        to_.take(task, {.role = Role::value, .access = wanted.access});
      } else {
        to_.use(task, Role::value, wanted.access, to_.objects().value(wanted.value, strip));
      }
    }
    for (const ValueUse& wanted : unit.backward) {
      if (in_pieces && unit.saves(wanted.value)) {
        to_.take(task, {.role = Role::value, .access = Access::write, .bytes = unit.saved_piece});
      } else {
        const bool is_made = again && unit.saves(wanted.value);
        to_.use(task, Role::value, wanted.access,
                is_made ? made_again(index, wanted.value, strip) : to_.objects().value(wanted.value, strip));
      }
    }
    weights(task, unit);
    for (const int block : unit.gradient_blocks) gradient(task, index, block, strip);
    to_.scratch(task, std::max(unit.backward_workspace, again ? unit.forward_workspace : 0));
    if (index == to_.units() - 1 && unit.role == ForwardRole::merged_into_backward) losses(task);
  }

  void gradient(Task& task, int index, int block, const Strip& strip) {
    const auto& users = to_.gradient_users(block);
    const int object = to_.objects().gradient(block, static_cast<int>(std::ranges::find(users, index) - users.begin()));
    const bool begins = strip.first == 0, goes_on = turns_of(to_.choices) > 1;
    TaskOperand& sum = to_.use(task, Role::gradient, begins && !goes_on ? Access::write : Access::update, object);
    if (begins && goes_on) sum.wants = kAfterFirst;
  }

  void forward(int index) {
    ++to_.phase;
    updates_.issue_due(to_.phase + network_.units_ahead());  // ranks gather weights only after their update
    const Unit& unit = unit_of(index);
    if (unit.role == ForwardRole::merged_into_backward) return;
    network_.gather_ahead(index, 1);
    // Pieces that are due with the next unit, which is the next phase.
    const auto quota = updates_.quota(to_.phase + 1, static_cast<int>(to_.strips.size()));
    for (const Strip& strip : to_.strips) {
      forward_task(index, strip);
      updates_.issue(quota);
    }
  }

  void backward(int index) {
    ++to_.phase;
    const Unit& unit = unit_of(index);
    const bool ends = index == to_.units() - 1;
    if (ends && unit.role == ForwardRole::computes) loss();
    network_.gather_ahead(index, -1);
    const auto quota = updates_.quota(to_.phase, static_cast<int>(to_.strips.size()));
    for (const Strip& strip : to_.strips) {
      backward_task(index, strip);
      if (to_.choices.update == UpdateTime::in_backward) updates_.issue(quota);
    }
    if (ends && unit.role == ForwardRole::merged_into_backward) loss();
  }

  void after_backward(int unit) {
    for (const int block : unit_of(unit).gradient_blocks) {
      if (to_.gradient_users(block).back() != unit) continue;  // another use of the tensor is still to come
      updates_.complete_gradient(block);
      if (to_.choices.update == UpdateTime::in_backward && !defers(to_.choices, block))
        updates_.queue(block, to_.last_turn, to_.phase);
    }
    if (!updates_.are_dealt_out()) updates_.issue_all();
  }

  // Adds the sum of the step's loss, which is known once its last micro-batch has its own; no update comes before.
  void loss() {
    const int micro_batches = to_.choices.micro_batches;
    const int ranks = to_.choices.sharding.ranks;
    const bool gathers = ranks > 1;
    const Bytes bytes = micro_batches * kMicroBatchWordsBytes;
    if (gathers) network_.gather_words(to_.plan.loss_buffer, to_.plan.ranks_loss_buffer, bytes, ranks);
    Task& task = to_.add(OpKind::loss, Lane::compute);
    task.op.when = to_.last_turn;
    to_.words(task, Role::losses, Access::update, to_.plan.loss_buffer, 0, loss_bytes(micro_batches));
    if (gathers) to_.words(task, Role::whole, Access::read, to_.plan.ranks_loss_buffer, 0, ranks * bytes);
  }

  TaskWriter to_;
  NetworkTasks network_{to_};
  UpdateTasks updates_{to_, network_};
  std::vector<std::pair<int, int>> made_again_;  // values that the backward being written makes again, and their objects
};

}  // namespace

TaskList step_tasks(const UnitGraph& graph, const Plan& plan) { return Builder(graph, plan, Purpose::training).step(); }
TaskList evaluation_tasks(const UnitGraph& graph, const Plan& plan) {
  return Builder(graph, plan, Purpose::evaluation).evaluation();
}

}  // namespace spillway
