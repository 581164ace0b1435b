#include "memory/plan/choices.h"

#include <fmt/core.h>

namespace spillway {

std::string order_words(const Choices& choices) {
  if (choices.group == choices.micro_batches) return "vertical";
  return choices.group == 1 ? "horizontal" : fmt::format("groups of {}", choices.group);
}

Bytes largest_weights(const UnitGraph& graph, StateForm form) {
  Bytes most = 0;
  for (const Unit& unit : graph.units) {
    if (unit.looks_up) continue;
    Bytes bytes = 0;
    for (const int index : unit.blocks) {
      const ParameterBlock& block = graph.blocks[static_cast<std::size_t>(index)];
      bytes += state_of(block, form).front().each() * block.elements;
    }
    most = std::max(most, bytes);
  }
  return most;
}

bool makes_durable(const Choices& choices) {
  // Where only some updates of a step come with the next step, no step's state is ever whole.
  const bool is_whole = defers_all(choices) || !defers_any(choices);
  return choices.durable_every > 0 && choices.slots == 2 && is_whole;
}

bool squares_with_update(const Choices& choices, int block) {
  return choices.update == UpdateTime::in_backward && !defers(choices, block) && choices.form != StateForm::compact &&
         choices.slots == 1 && choices.sharding.ranks == 1 && !has_host(choices.chain);
}

std::vector<std::int64_t> norm_words(const UnitGraph& graph, const Choices& choices) {
  std::vector<std::int64_t> begin(1, 0);
  for (const ParameterBlock& block : graph.blocks)
    begin.push_back(begin.back() + (block.frozen                          ? 0
                                    : choices.sharding.shards_optimizer() ? square_nodes_of_part(block.elements)
                                                                          : 1));
  return begin;
}

}  // namespace spillway
