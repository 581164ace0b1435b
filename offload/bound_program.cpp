#include "offload/bound_program.h"

#include <algorithm>
#include <span>
#include <utility>

#include "memory/base/error.h"

namespace spillway {
namespace {

// An operand's address; null on NVMe.
std::byte* address_of(const Plan& plan, const Program& program, const TierMemory& memory, const Operand& operand) {
  const Buffer& buffer = buffer_of(plan, program, operand.buffer);
  return in_memory(buffer.tier) ? memory.at(buffer.tier, buffer.offset + operand.begin) : nullptr;
}

// An operand's address for the runtime's copies.
std::byte* handle_of(const Plan& plan, const Program& program, const TierMemory& memory, const Operand& operand) {
  const Buffer& buffer = buffer_of(plan, program, operand.buffer);
  return memory.handle(buffer.tier, buffer.offset + operand.begin);
}

// True where updates hash the state that they leave. Of a weight that ranks gather behind an update each has updated only a part.
bool is_hashed_by_update(const Choices& choices, StateKind kind) {
  return updates_see_state(choices) && !(kind == StateKind::weight && updates_part_of_weight(choices.sharding));
}

BoundSegment segment_of(const Plan& plan, const Program& program, const TierMemory& memory, const Operand& nvme,
                        const Operand& near) {
  const Buffer& home = buffer_of(plan, program, nvme.buffer);
  const Bytes begin = home.offset + nvme.begin;
  return {.nvme_offset = {begin, begin + (home.slots == 2 ? home.bytes : 0)},
          .buffer = nvme.buffer < static_cast<int>(plan.resident.size()) ? nvme.buffer : -1,
          .begin = nvme.begin,
          .version = nvme.version,
          .memory = address_of(plan, program, memory, near),
          .bytes = nvme.bytes,
          .notes_hashes = !is_hashed_by_update(plan.choices, nvme.kind)};
}

BoundMove bound_move(const Plan& plan, const Program& program, const TierMemory& memory, const Op& op) {
  BoundMove bound;
  for (std::size_t i = 0; i + 1 < op.operands.size(); i += 2) {
    const Operand &from = op.operands[i], &to = op.operands[i + 1];
    SPILLWAY_CHECK(from.role == Role::from && to.role == Role::to && from.bytes == to.bytes, "{} bytes move to {}", from.bytes,
                   to.bytes);
    const auto is_stored = [&](const Operand& operand) { return !in_memory(buffer_of(plan, program, operand.buffer).tier); };
    if (is_stored(from)) {
      bound.segments.push_back(segment_of(plan, program, memory, from, to));
    } else if (is_stored(to)) {
      bound.segments.push_back(segment_of(plan, program, memory, to, from));
    } else {
      bound.copies.push_back({handle_of(plan, program, memory, to), handle_of(plan, program, memory, from), from.bytes});
    }
  }
  return bound;
}

BoundOperands bound_operands(const Plan& plan, const Program& program, const TierMemory& memory, const Op& op,
                             std::int64_t first_element) {
  BoundOperands bound;
  for (const Operand& operand : op.operands) {
    if (operand.buffer < 0) continue;
    std::byte*& place = operand.role == Role::state ? bound.state[static_cast<std::size_t>(operand.kind)] : bound[operand.role];
    place = address_of(plan, program, memory, operand);
    // The operand is the whole weight, of which the update takes its range.
    if (op.kind == OpKind::update && operand.role == Role::state && operand.kind == StateKind::weight &&
        updates_part_of_weight(plan.choices.sharding))
      place += (first_element + op.element_begin) * plan.blocks[static_cast<std::size_t>(op.block)].weight().each();
  }
  return bound;
}

void note_ends(const Plan& plan, const Program& program, BoundOp& bound) {
  for (const Operand& operand : bound.op->operands) {
    if (operand.buffer < 0) continue;
    const Buffer& buffer = buffer_of(plan, program, operand.buffer);
    Bytes& end = bound.end[buffer.tier];
    end = std::max(end, buffer.offset + buffer.slots * buffer.bytes);
  }
}

// Leaves the check of state that was read to the update, where the update is the first to take it. An update in pieces takes a
// block's weight in each piece.
void leave_checks_to_updates(const Plan& plan, const Program& program, std::span<BoundOp* const> bound) {
  struct Memory {
    BoundSegment* read = nullptr;  // the last read into this buffer, while no operation has taken its bytes
    bool checked_by_update = false;
  };
  std::vector<Memory> memories(plan.resident.size() + program.buffers.size());
  for (std::size_t id = 0; id < program.ops.size(); ++id) {
    const Op& op = program.ops[id];
    const bool reads = op.lane == Lane::nvme_read, updates = op.kind == OpKind::update;
    for (const Operand& operand : op.operands) {
      if (operand.buffer < 0 || reads) continue;
      Memory& memory = memories[static_cast<std::size_t>(operand.buffer)];
      BoundSegment* const read = std::exchange(memory.read, nullptr);
      if (read != nullptr && updates && is_hashed_by_update(plan.choices, operand.kind)) {
        memory.checked_by_update = true;
        read->checked_by_update = op.when;
      }
      if (updates && operand.role == Role::state)
        std::get<BoundOperands>(bound[id]->touches).checks[static_cast<std::size_t>(operand.kind)] = memory.checked_by_update;
    }
    for (std::size_t i = 0; reads && i + 1 < op.operands.size(); i += 2) {
      if (op.operands[i].buffer >= std::ssize(plan.resident)) continue;
      memories[static_cast<std::size_t>(op.operands[i + 1].buffer)] = {
          .read = &std::get<BoundMove>(bound[id]->touches).segments[i / 2]};
    }
  }
}

// `keeps`: the unit's saved values have places of their own, or the unit makes them in one piece.
Pass pass_of(OpKind kind, bool keeps) {
  if (kind == OpKind::backward) return keeps ? Pass::backward : Pass::backward_in_pieces;
  return keeps ? Pass::forward : Pass::forward_in_pieces;
}

BoundPass bound_pass(const Plan& plan, const Program& program, const TierMemory& memory, const UnitGraph& graph,
                     const UnitCode& code, const Op& op, bool evaluates) {
  BoundPass bound;
  for (const Operand& operand : op.operands) {
    std::byte* const address = operand.buffer < 0 ? nullptr : address_of(plan, program, memory, operand);
    if (operand.role == Role::value) bound.values.push_back(address);
    if (operand.role == Role::weights) bound.weights.push_back(address);
    if (operand.role == Role::gradient) bound.gradients.push_back(reinterpret_cast<float*>(address));
    if (operand.role == Role::workspace) bound.workspace = address;
  }
  const Unit& unit = graph.units[static_cast<std::size_t>(op.unit)];
  const bool keeps = keeps_saved(plan.choices, op.unit, evaluates);
  bound.calls = &code[pass_of(op.kind, keeps || unit.saved_piece == 0)];
  if (op.kind == OpKind::backward && recomputes(graph, plan.choices, op.unit)) {
    bound.calls_before = &code[Pass::recompute];
    bound.values_before = unit.forward.size();
  }
  // Values without a use beyond the call lie at the same address for all micro-batches.
  const auto add_strides = [&](const std::vector<ValueUse>& uses) {
    for (const ValueUse& use : uses) {
      const Bytes bytes = graph.values[static_cast<std::size_t>(use.value)].bytes;
      bound.strides.push_back(unit.saves(use.value) && !keeps ? 0 : strip_stride(bytes));
    }
  };
  if (bound.calls_before != nullptr) add_strides(unit.forward);
  add_strides(op.kind == OpKind::backward ? unit.backward : unit.forward);
  return bound;
}

std::string name_of(const Op& op, const UnitGraph& graph) {
  std::string name(spillway::name_of(op));
  if (op.unit >= 0) return name + " " + graph.units[static_cast<std::size_t>(op.unit)].name;
  if (op.block >= 0) return name + " " + graph.blocks[static_cast<std::size_t>(op.block)].name;
  return name;
}

}  // namespace

BoundProgram bind_program(const Plan& plan, const UnitGraph& graph, const Program& program, int rank, const TierMemory& memory,
                          const std::vector<std::shared_ptr<const UnitCode>>& units, bool evaluates) {
  BoundProgram bound;
  bound.operations = static_cast<int>(program.ops.size());
  std::vector<std::uint32_t> place(program.ops.size());
  By<Lane, std::uint32_t> count;
  for (std::size_t id = 0; id < program.ops.size(); ++id) place[id] = ++count[program.ops[id].lane];
  for (std::size_t id = 0; id < program.ops.size(); ++id) {
    const Op& op = program.ops[id];
    BoundOp& made = bound.lanes[op.lane].emplace_back();
    made.op = &op;
    made.id = static_cast<int>(id);
    made.name = name_of(op, graph);
    if (op.block >= 0 && plan.choices.sharding.shards_optimizer()) {
      const std::int64_t elements = graph.blocks[static_cast<std::size_t>(op.block)].elements;
      made.first_element = part_of(elements, plan.choices.sharding, rank).begin;
    }
    for (const Wait& wait : op.waits) made.waits.push_back({program.ops[wait.op].lane, place[wait.op], wait.turn < 0});
    note_ends(plan, program, made);
    switch (op.kind) {
      case OpKind::forward:
      case OpKind::backward: made.touches = bound_pass(plan, program, memory, graph, *units.at(op.unit), op, evaluates); break;
      case OpKind::move: made.touches = bound_move(plan, program, memory, op); break;
      default: made.touches = bound_operands(plan, program, memory, op, made.first_element); break;
    }
  }
  std::vector<BoundOp*> by_id(program.ops.size());
  for (auto& lane : bound.lanes) {
    for (BoundOp& op : lane) by_id[static_cast<std::size_t>(op.id)] = &op;
  }
  if (updates_see_state(plan.choices)) leave_checks_to_updates(plan, program, by_id);
  if (kGuardsBuffers && memory.runtime().host_sees_device())
    bound.guard = std::make_unique<BufferGuard>(program, plan, memory.device());
  return bound;
}

}  // namespace spillway
