#include "memory/passes/network_tasks.h"

#include <algorithm>

namespace spillway {

int NetworkTasks::whole_weight(int block) const {
  return sharding().shards_weights() ? gathered_[static_cast<std::size_t>(block)].object : to_.objects().weight(block);
}

void NetworkTasks::gather_ahead(int unit, int direction) {
  if (!sharding().shards_weights()) return;
  for (int ahead = 0; ahead <= units_ahead(); ++ahead) {
    const int wanted = unit + ahead * direction;
    if (wanted < 0 || wanted >= to_.units()) return;
    const Unit& of = to_.graph.units[static_cast<std::size_t>(wanted)];
    if (direction < 0 && !of.goes_back()) continue;
    if (direction > 0 && to_.purpose == Purpose::training && of.role == ForwardRole::merged_into_backward) continue;
    const std::size_t unread = direction < 0 && of.looks_up ? 1 : 0;  // the backward of a lookup takes no weights
    for (std::size_t place = unread; place < of.blocks.size(); ++place) gather_for(of.blocks[place], wanted, to_.phase + ahead);
  }
}

void NetworkTasks::gather_for(int block, int unit, int phase) {
  Gathered& gathered = gathered_[static_cast<std::size_t>(block)];
  if (gathered.object < 0 || gathered.phase < to_.phase - 1 - units_ahead()) {
    const ParameterBlock& of = to_.graph.blocks[static_cast<std::size_t>(block)];
    const Bytes bytes = of.elements * to_.plan.blocks[block].weight().each();
    gathered.object = to_.objects().add({.name = {of.name, ".gathered"},
                                         .category = Category::parameters,
                                         .staged_category = Category::parameters,
                                         .bytes = bytes,
                                         .block = block});
    const int part = to_.objects().weight(block);
    Task& task = to_.add(OpKind::gather, Lane::network);
    task.op.unit = unit;
    task.op.block = block;
    task.op.bytes = bytes_of_collective(bytes, sharding().group);
    to_.use(task, Role::part, Access::read, part);
    to_.use(task, Role::whole, Access::write, gathered.object);
  }
  gathered.phase = std::max(gathered.phase, phase);
}

void NetworkTasks::gather_updated(int block, TurnSet when, int phase) {
  if (!sharding().shards_optimizer() || sharding().shards_weights()) return;
  const int whole = to_.objects().weight(block);
  Task& task = to_.add(OpKind::gather, Lane::network);
  task.phase = phase;
  task.op.block = block;
  task.op.when = when;
  task.op.bytes = bytes_of_collective(to_.object(whole).bytes, sharding().group);
  to_.use(task, Role::whole, Access::update, whole);
}

void NetworkTasks::reduce_gradient(int block) {
  if (sharding().ranks == 1) return;
  const int sum = to_.objects().gradient(block, 0), reduced = to_.objects().reduced_gradient(block);
  Task& task = to_.add(OpKind::reduce, Lane::network);
  task.op.block = block;
  task.op.when = to_.last_turn;
  const std::int64_t elements = to_.graph.blocks[static_cast<std::size_t>(block)].elements;
  task.op.bytes = bytes_of_sum(elements, sharding());
  task.op.work.bytes = memory_of_sum(elements, sharding());
  to_.use(task, Role::whole, reduced == sum ? Access::update : Access::read, sum);
  if (reduced != sum) to_.use(task, Role::part, Access::write, reduced);
  to_.scratch(task, staging_of_sum(elements, sharding()));
}

void NetworkTasks::gather_words(int own, int all, Bytes bytes, int ranks) {
  Task& task = to_.add(OpKind::gather, Lane::network);
  task.op.when = to_.last_turn;
  task.op.bytes = (ranks - 1) * bytes;
  to_.words(task, Role::part, Access::read, own, 0, bytes);
  to_.words(task, Role::whole, Access::write, all, 0, ranks * bytes);
}

}  // namespace spillway
