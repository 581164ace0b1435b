#include "memory/passes/resident_buffers.h"

#include <algorithm>

namespace spillway {
namespace {

int add_resident(Plan& plan, const BufferName& name, Category category, Tier tier, Bytes bytes, int slots) {
  plan.resident.push_back({.name = name,
                           .category = category,
                           .tier = tier,
                           .bytes = round_up(bytes, kExtentAlignment),
                           .slots = slots,
                           .resident = true});
  return static_cast<int>(plan.resident.size()) - 1;
}

void add_state(const ParameterBlock& block, const StateArray& array, Tier tier, Plan& plan) {
  const Bytes bytes = array.each() * elements_at_rest(plan.choices.sharding, block, array.kind);
  plan.blocks.back().state.push_back(
      {array, add_resident(plan, {block.name, suffix_of(array.kind)}, category_of(array.kind), tier, bytes,
                           in_memory(tier) || block.frozen ? 1 : plan.choices.slots)});
}

void add_common_buffers(const UnitGraph& graph, Plan& plan) {
  plan.loss_buffer = add_resident(plan, {"losses"}, Category::staging, Tier::device, loss_bytes(plan.choices.micro_batches), 1);
  if (graph.constant_bytes > 0)
    plan.constant_buffer = add_resident(plan, {"constants"}, Category::staging, Tier::device, graph.constant_bytes, 1);
}

// Adds the gradient sums that live from turn to turn: one for each user of a block, except where the waiting gradient is the sum.
void add_sums(const UnitGraph& graph, Plan& plan) {
  if (turns_of(plan.choices) == 1) return;
  const bool waits_as_is = plan.choices.form != StateForm::compact && !plan.choices.sharding.shards_optimizer();
  for (const Unit& unit : graph.units) {
    for (const int block : unit.gradient_blocks) {
      const ParameterBlock& of = graph.blocks[block];
      const int waiting = plan.blocks[block].waiting_gradient;
      std::vector<int>& sums = plan.blocks[block].sums;
      const bool is_there = sums.empty() && waits_as_is && waiting >= 0;
      sums.push_back(is_there ? waiting
                              : add_resident(plan, {of.name, sums.empty() ? ".gradient" : ".gradient_of_second_use"},
                                             Category::gradients, plan.choices.blocks[block].gradient, 4 * of.elements, 1));
    }
  }
}

}  // namespace

void add_resident_buffers(const UnitGraph& graph, Plan& plan) {
  const Choices& choices = plan.choices;
  const Bytes word = sizeof(double);
  add_common_buffers(graph, plan);
  if (choices.sharding.ranks > 1) {
    plan.ranks_loss_buffer = add_resident(plan, {"losses_of_ranks"}, Category::staging, Tier::device,
                                          choices.sharding.ranks * choices.micro_batches * kMicroBatchWordsBytes, 1);
  }
  if (choices.sharding.shards_optimizer()) {
    plan.ranks_norm_buffer = add_resident(plan, {"gradient_norms_of_ranks"}, Category::staging, Tier::device,
                                          choices.sharding.group * norm_words(graph, choices).back() * word, 1);
  }
  plan.norm_buffer = add_resident(plan, {"gradient_norms"}, Category::staging, Tier::device,
                                  (norm_words(graph, choices).back() + kSquareNodesFromBegin) * word, 1);
  plan.factor_buffer = add_resident(plan, {"clip_factor"}, Category::staging, Tier::device, 2 * word, 1);
  plan.token_buffer =
      add_resident(plan, {"tokens"}, Category::activations, Tier::device, 2 * choices.micro_batches * token_bytes(graph), 1);
  if (choices.gives_logits)
    plan.logits_buffer = add_resident(plan, {"logits"}, Category::activations, Tier::device, graph.logits_bytes, 1);
  for (int block = 0; block < std::ssize(graph.blocks); ++block) {
    const ParameterBlock& of = graph.blocks[block];
    BlockBuffers& buffers = plan.blocks.emplace_back();
    for (const StateArray& array : state_of(of, choices.form))
      add_state(of, array, array.kind == StateKind::weight ? choices.blocks[block].weight : choices.blocks[block].optimizer,
                plan);
    if (defers(choices, block) && !of.frozen)
      buffers.waiting_gradient =
          add_resident(plan, {of.name, ".waiting_gradient"}, Category::gradients, choices.blocks[block].gradient,
                       gradient_bytes_per_element(choices.form) * waiting_elements(choices.sharding, of), 1);
  }
  add_sums(graph, plan);
}

void add_inference_buffers(const UnitGraph& graph, Plan& plan) {
  const Choices& choices = plan.choices;
  add_common_buffers(graph, plan);
  plan.token_buffer =
      add_resident(plan, {"tokens"}, Category::activations, Tier::device, 2 * choices.micro_batches * token_bytes(graph), 1);
  plan.logits_buffer = add_resident(plan, {"logits"}, Category::activations, Tier::device, graph.logits_bytes, 1);
  for (const Value& value : graph.values) {
    plan.value_buffer.push_back(
        !value.lasts ? -1 : add_resident(plan, {value.name}, Category::activations, Tier::device, value.bytes, 1));
  }
  for (std::size_t block = 0; block < graph.blocks.size(); ++block) {
    plan.blocks.emplace_back();
    add_state(graph.blocks[block], state_of(graph.blocks[block], choices.form).front(), choices.blocks[block].weight, plan);
  }
}

}  // namespace spillway
