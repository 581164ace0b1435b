#include "memory/passes/update_tasks.h"

#include <algorithm>
#include <span>

namespace spillway {

// --- dealing out ---

void UpdateTasks::queue_waiting() {
  const Choices& choices = to_.choices;
  for (int unit = 0; unit < to_.units(); ++unit) {
    for (const int block : to_.graph.units[unit].blocks) {
      if (defers(choices, block) && !block_of(block).frozen && !queued_[block]) queue(block, kWaitingUpdates, unit + 1);
    }
  }
}

void UpdateTasks::queue(int block, TurnSet when, int due) {
  queued_[block] = 1;
  const std::int64_t elements = elements_at_rest(to_.choices.sharding, block_of(block), StateKind::m);
  const bool rests_there = to_.choices.blocks[block].optimizer == to_.choices.update_tier;
  const std::int64_t size = rests_there ? elements : to_.choices.update_chunk;
  for (std::int64_t begin = 0; begin < elements; begin += size)
    due_.push_back({block, begin, std::min(begin + size, elements), when, due});
}

void UpdateTasks::issue(const Quota& quota) {
  for (std::size_t left = quota.pieces; left > 0 && !due_.empty() && due_.front().due <= quota.due_by; --left) {
    update(due_.front());
    due_.pop_front();
  }
}

UpdateTasks::Quota UpdateTasks::quota(int due_by, int tasks) const {
  Quota quota{due_by, 0};
  if (!are_dealt_out()) return quota;
  while (quota.pieces < due_.size() && due_[quota.pieces].due <= due_by) ++quota.pieces;
  quota.pieces = (quota.pieces + static_cast<std::size_t>(tasks) - 1) / static_cast<std::size_t>(tasks);
  return quota;
}

// --- gradients ---

void UpdateTasks::complete_gradient(int block) {
  const auto uses = static_cast<int>(to_.gradient_users(block).size());
  for (int use = 1; use < uses; ++use) {
    const int first = to_.objects().gradient(block, 0), other = to_.objects().gradient(block, use);
    Task& task = to_.add(OpKind::gradient_add, lane_of_gradients(to_.choices.chain));
    task.op.block = block;
    task.op.when = to_.last_turn;
    task.op.work.bytes = 12.0 * static_cast<double>(block_of(block).elements);
    to_.use(task, Role::sum, Access::update, first);
    to_.use(task, Role::addend, Access::read, other);
  }
  network_.reduce_gradient(block);
  if (!squares_with_update(to_.choices, block)) finish_gradient(block);
}

void UpdateTasks::finish_gradient(int block) {
  const int sum = to_.objects().reduced_gradient(block), waiting = to_.objects().gradient_for_update(block);
  const bool rounds = to_.choices.form == StateForm::compact;
  Task& task = to_.add(OpKind::gradient_finish, lane_of_gradients(to_.choices.chain));
  task.op.block = block;
  task.op.when = to_.last_turn;
  const std::int64_t summed = elements_at_rest(to_.choices.sharding, block_of(block), StateKind::m);
  task.op.work.bytes = (rounds ? 6.0 : 4.0) * static_cast<double>(summed);
  to_.use(task, Role::sum, Access::read, sum);
  if (rounds) to_.use(task, Role::waiting, Access::write, waiting);
  write_squares(task, block);
}

void UpdateTasks::use_norm_words(Task& task, Role role, Access access, std::int64_t begin, std::int64_t end) {
  constexpr Bytes word = sizeof(double);
  to_.words(task, role, access, to_.plan.norm_buffer, begin * word, (end - begin) * word);
}

void UpdateTasks::write_squares(Task& task, int block) {
  use_norm_words(task, Role::squares, Access::write, norm_words_[block], norm_words_[block + 1]);
}

void UpdateTasks::norm() {
  const std::int64_t end = norm_words_.back();
  const Bytes bytes = end * static_cast<Bytes>(sizeof(double));
  const int group = to_.choices.sharding.group;
  const bool gathers = to_.choices.sharding.shards_optimizer();
  if (gathers) network_.gather_words(to_.plan.norm_buffer, to_.plan.ranks_norm_buffer, bytes, group);
  Task& task = to_.add(OpKind::norm, lane_of_gradients(to_.choices.chain));
  task.op.when = to_.last_turn;
  if (gathers) {
    to_.words(task, Role::squares, Access::read, to_.plan.ranks_norm_buffer, 0, group * bytes);
  } else {
    use_norm_words(task, Role::squares, Access::read, 0, end);
  }
  to_.words(task, Role::factor, Access::write, to_.plan.factor_buffer, 0, 2 * static_cast<Bytes>(sizeof(double)));
}

// --- updates ---

void UpdateTasks::update(const UpdatePiece& piece) {
  const Choices& choices = to_.choices;
  TaskObjects& objects = to_.objects();
  const int weight_of_block = objects.weight(piece.block);
  const std::int64_t elements = piece.end - piece.begin;
  const bool waited = objects.waits_for_next_step(piece.block);
  const int gradient =
      waited ? objects.piece_that_waited(piece.block, piece.begin, elements) : objects.gradient_for_update(piece.block);
  const BlockBuffers& buffers = to_.plan.blocks[piece.block];
  std::vector<int> moved;
  for (const RestingArray& array : std::span(buffers.state).subspan(1))
    moved.push_back(objects.state(piece.block, array, piece.begin, elements));
  Task& task = to_.add(OpKind::update, lane_of_updates(choices), choices.update_tier);
  if (task.op.lane == Lane::update) task.phase = piece.due;
  task.op.block = piece.block;
  task.op.when = piece.when;
  task.op.element_begin = piece.begin;
  task.op.element_end = piece.end;
  const Bytes weight_bytes = buffers.weight().each(), gradient_bytes = gradient_bytes_per_element(choices.form),
              each = gradient_bytes + 2 * bytes_per_element(state_of(block_of(piece.block), choices.form));
  task.op.work.bytes = static_cast<double>(each * elements);
  if (updates_part_of_weight(choices.sharding)) {
    to_.use(task, Role::state, Access::update, weight_of_block);
  } else {
    to_.use(task, Role::state, Access::update, weight_of_block, piece.begin * weight_bytes, elements * weight_bytes);
  }
  for (const int object : moved) to_.use(task, Role::state, Access::update, object);
  const bool takes_squares = squares_with_update(choices, piece.block);
  const std::int64_t block_elements = elements_at_rest(choices.sharding, block_of(piece.block), StateKind::m);
  to_.use(task, Role::waiting, Access::read, gradient, waited ? 0 : piece.begin * gradient_bytes, elements * gradient_bytes);
  if (takes_squares && elements < block_elements)
    use_norm_words(task, Role::open_squares, Access::update, norm_words_.back(), norm_words_.back() + kSquareNodesFromBegin);
  if (takes_squares && piece.end == block_elements) write_squares(task, piece.block);
  read_verdict(task);
  if (piece.end == block_elements) network_.gather_updated(piece.block, piece.when, piece.due);
}

// Makes an update wait for the loss and read the factor. The step's control block says whether gradients are applied at all.
void UpdateTasks::read_verdict(Task& task) {
  to_.words(task, Role::loss, Access::read, to_.plan.loss_buffer, to_.choices.micro_batches * kMicroBatchWordsBytes,
            sizeof(double));
  // In the backward the factor is not known yet: it is 1, or the step is run again with the factor known.
  if (to_.choices.update != UpdateTime::in_backward)
    to_.words(task, Role::factor, Access::read, to_.plan.factor_buffer, 0, 2 * static_cast<Bytes>(sizeof(double)));
}

}  // namespace spillway
