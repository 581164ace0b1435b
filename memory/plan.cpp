#include "memory/plan.h"

#include <algorithm>
#include <numeric>

#include "memory/error.h"

namespace spillway {

std::string_view name_of(const OpHead& op) {
  const bool rows = op.index == Index::rows;
  switch (op.kind) {
    case OpKind::move:
      if (op.lane == Lane::nvme_read) return rows ? "read_rows" : "read";
      if (op.lane == Lane::nvme_write) return rows ? "write_rows" : "write";
      return name_of(op.lane);
    case OpKind::forward: return "forward";
    case OpKind::backward: return "backward";
    case OpKind::loss: return "loss";
    case OpKind::gradient_add: return rows ? "gradient_add_rows" : "gradient_add";
    case OpKind::gradient_finish: return rows ? "gradient_finish_rows" : "gradient_finish";
    case OpKind::norm: return "norm";
    case OpKind::update: return rows ? "update_rows" : "update";
    case OpKind::gather: return "gather";
    case OpKind::reduce: return "reduce";
    case OpKind::commit: return "commit";
  }
  return {};
}
std::string order_words(const Choices& choices) {
  if (choices.group == choices.micro_batches) return "vertical";
  return choices.group == 1 ? "horizontal" : fmt::format("groups of {}", choices.group);
}

Bytes largest_weights(const UnitGraph& graph, StateForm form) {
  Bytes most = 0;
  for (const Unit& unit : graph.units) {
    if (unit.lookup.rows > 0) continue;
    Bytes bytes = 0;
    for (const int index : unit.blocks) {
      const ParameterBlock& block = graph.blocks[static_cast<std::size_t>(index)];
      bytes += state_of(block, form).front().each() * block.elements;
    }
    most = std::max(most, bytes);
  }
  return most;
}

Bytes row_window(Bytes row_bytes) {
  return round_up(row_bytes + kExtentAlignment - std::gcd(row_bytes, kExtentAlignment), kExtentAlignment);
}

bool makes_durable(const Choices& choices) {
  // Where some updates of a step come with the next one, or some rows after their blocks, no step's state is ever whole.
  const bool is_whole = defers_all(choices) || (!defers_any(choices) && !choices.fetches_rows);
  return choices.durable_every > 0 && choices.slots == 2 && is_whole;
}

bool squares_with_update(const UnitGraph& graph, const Choices& choices, int block) {
  return choices.update == UpdateTime::in_backward && !defers(choices, block) && !keeps_rows_apart(graph, choices, block) &&
         choices.form != StateForm::compact && choices.slots == 1 && choices.sharding.ranks == 1 && !has_host(choices.chain);
}

bool keeps_rows_apart(const UnitGraph& graph, const Choices& choices, int block) {
  return choices.fetches_rows && graph.blocks[static_cast<std::size_t>(block)].looked_up;
}

bool has_dense_gradient(const UnitGraph& graph, const Choices& choices, int block) {
  if (!keeps_rows_apart(graph, choices, block)) return true;
  return std::any_of(graph.units.begin(), graph.units.end(), [&](const Unit& unit) {
    return unit.lookup.rows == 0 &&
           std::find(unit.gradient_blocks.begin(), unit.gradient_blocks.end(), block) != unit.gradient_blocks.end();
  });
}

int first_sharing_unit(const UnitGraph& graph) {
  const auto is_looked_up = [&](int block) { return graph.blocks[static_cast<std::size_t>(block)].looked_up; };
  const auto shares = [&](const Unit& unit) {
    return unit.lookup.rows == 0 && std::any_of(unit.gradient_blocks.begin(), unit.gradient_blocks.end(), is_looked_up);
  };
  const auto first = std::find_if(graph.units.begin(), graph.units.end(), shares);
  return static_cast<int>(std::min(first, graph.units.end() - 1) - graph.units.begin());
}

bool may_fetch_rows(const UnitGraph& graph, const Choices& choices) {
  if (choices.sharding.ranks > 1 || has_memory_below(choices.chain) || turns_of(choices) > 1) return false;
  const bool rows_last = choices.update == UpdateTime::in_backward && !choices.clip && choices.slots == 1;
  if (!rows_last && !defers_all(choices)) return false;
  bool any = false;
  for (const Unit& unit : graph.units) {
    if (unit.lookup.rows == 0) continue;
    any = true;
    if (unit.lookup.row_elements % kSquareLeaf != 0) return false;
    const int block = unit.blocks.front();
    for (const auto* tiers : {&choices.weight_tier, &choices.optimizer_tier, &choices.gradient_tier}) {
      if (in_memory((*tiers)[block])) return false;
    }
    for (const Bytes each : {Bytes{2}, Bytes{4}}) {
      if (row_window(unit.lookup.row_elements * each) > graph.blocks[block].elements * each) return false;
    }
  }
  return any;
}

std::vector<std::int64_t> norm_words(const UnitGraph& graph, const Choices& choices) {
  std::vector<std::int64_t> begin(1, 0);
  for (const ParameterBlock& block : graph.blocks)
    begin.push_back(begin.back() + (choices.sharding.shards_optimizer() ? square_nodes_of_part(block.elements) : 1));
  return begin;
}

const Buffer& buffer_of(const Plan& plan, const Program& program, int index) {
  const int resident = static_cast<int>(plan.resident.size());
  SPILLWAY_CHECK(index >= 0 && index < resident + static_cast<int>(program.buffers.size()), "buffer {} of {} + {}", index,
                 resident, program.buffers.size());
  return index < resident ? plan.resident[index] : program.buffers[static_cast<std::size_t>(index - resident)];
}

}  // namespace spillway
