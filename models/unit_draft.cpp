#include "models/unit_draft.h"

#include <algorithm>
#include <set>
#include <utility>

#include "memory/base/error.h"

namespace spillway {
namespace {

constexpr Bytes kAlignment = 64;

// An operand's room or value, without its byte: enough to tell whether one call's result is another's input.
using Whereabouts = std::pair<Space, int>;
Whereabouts whereabouts_of(const Place& place) { return {place.space, place.index}; }

auto use_of(auto& uses, int value) {
  return std::find_if(uses.begin(), uses.end(), [&](const ValueUse& use) { return use.value == value; });
}

// The values that a pass uses, in the order in which it comes to them. The first access decides: a value that is written first
// holds nothing that is wanted; a value that is read first and written later is updated.
std::vector<ValueUse> uses_of(std::vector<Kernel>& kernels) {
  std::vector<ValueUse> uses;
  for (Kernel& kernel : kernels) {
    for (const OperandUse& operand : operands_of(kernel)) {
      if (operand.place->space != Space::value) continue;
      const auto found = use_of(uses, operand.place->index);
      if (found == uses.end()) {
        uses.push_back({operand.place->index, operand.access});
      } else if (found->access == Access::read && operand.access != Access::read) {
        found->access = Access::update;
      }
    }
  }
  return uses;
}

// A stretch of the workspace, and the calls [first, last] that need it.
struct Room {
  Bytes bytes = 0, offset = 0;
  int first = -1, last = -1;
};

// Places large rooms first, each as low as the rooms that live at the same time allow. Returns the end.
Bytes place_rooms(std::vector<Room>& rooms) {
  std::vector<Room*> order;
  for (Room& room : rooms) {
    if (room.first >= 0 && room.bytes > 0) order.push_back(&room);
  }
  std::stable_sort(order.begin(), order.end(), [](const Room* a, const Room* b) { return a->bytes > b->bytes; });
  std::vector<const Room*> placed;  // by offset
  Bytes end = 0;
  for (Room* room : order) {
    room->offset = 0;
    for (const Room* other : placed) {
      if (other->last < room->first || room->last < other->first) continue;
      if (other->offset >= room->offset + room->bytes) break;
      room->offset = std::max(room->offset, other->offset + other->bytes);
    }
    placed.insert(
        std::upper_bound(placed.begin(), placed.end(), room, [](const Room* a, const Room* b) { return a->offset < b->offset; }),
        room);
    end = std::max(end, room->offset + room->bytes);
  }
  return end;
}

struct CompiledPass {
  CallList list;
  Bytes workspace = 0;
  Work work;
};

CompiledPass compile_pass(PassDraft draft, const std::vector<ValueUse>& uses, const ScratchBound& scratch) {
  CompiledPass pass;
  std::vector<Room> rooms;
  for (const Bytes bytes : draft.rooms()) rooms.push_back({.bytes = round_up(bytes, kAlignment)});
  const std::size_t named = rooms.size();
  const int count = static_cast<int>(draft.kernels().size());
  for (int i = 0; i < count; ++i) {
    Kernel& kernel = draft.kernels()[static_cast<std::size_t>(i)];
    pass.work += work_of(kernel);
    for (const OperandUse& operand : operands_of(kernel)) {
      if (operand.place->space != Space::workspace) continue;
      Room& room = rooms[static_cast<std::size_t>(operand.place->index)];
      if (room.first < 0) room.first = i;
      room.last = i;
    }
    rooms.push_back({.bytes = round_up(scratch(kernel), kAlignment), .first = i, .last = i});
  }
  pass.workspace = place_rooms(rooms);

  for (int i = 0; i < count; ++i) {
    KernelCall call{.kernel = std::move(draft.kernels()[static_cast<std::size_t>(i)])};
    for (const OperandUse& operand : operands_of(call.kernel)) {
      Place& place = *operand.place;
      if (place.space == Space::workspace) {
        place.offset += rooms[static_cast<std::size_t>(std::exchange(place.index, 0))].offset;
      } else if (place.space == Space::value) {
        const auto found = use_of(uses, place.index);
        SPILLWAY_CHECK(found != uses.end(), "a variant of a pass uses value {}, which the pass does not", place.index);
        place.index = static_cast<int>(found - uses.begin());
      }
    }
    const Room& room = rooms[named + static_cast<std::size_t>(i)];
    call.scratch_bytes = room.bytes;
    if (room.bytes > 0) call.scratch = {.space = Space::workspace, .offset = room.offset};
    pass.list.push_back(std::move(call));
  }
  return pass;
}

// The kernels of the forward on which the saved values depend. Other values that they write go to the workspace.
PassDraft recompute_of(PassDraft forward, const Unit& unit, const std::vector<Bytes>& value_bytes_by_use,
                       const std::vector<ValueUse>& uses) {
  std::set<Whereabouts> wanted;
  for (const int value : unit.saved) wanted.insert({Space::value, value});
  std::vector<Kernel> kept;
  for (std::size_t i = forward.kernels().size(); i-- > 0;) {
    Kernel& kernel = forward.kernels()[i];
    const std::vector<OperandUse> operands = operands_of(kernel);
    const bool is_wanted = std::any_of(operands.begin(), operands.end(), [&](const OperandUse& operand) {
      return operand.access != Access::read && wanted.contains(whereabouts_of(*operand.place));
    });
    if (!is_wanted) continue;
    for (const OperandUse& operand : operands) {
      if (operand.access != Access::write) wanted.insert(whereabouts_of(*operand.place));
    }
    kept.push_back(std::move(kernel));
  }
  std::reverse(kept.begin(), kept.end());
  PassDraft draft;
  draft.rooms() = forward.rooms();
  std::vector<int> room_of_use(uses.size(), -1);
  for (Kernel& kernel : kept) {
    for (const OperandUse& operand : operands_of(kernel)) {
      Place& place = *operand.place;
      if (place.space != Space::value) continue;
      const auto use = use_of(uses, place.index);
      if (use->access == Access::read || unit.saves(use->value)) continue;
      const auto at = static_cast<std::size_t>(use - uses.begin());
      if (room_of_use[at] < 0) room_of_use[at] = draft.room(value_bytes_by_use[at]).index;
      place.space = Space::workspace;
      place.index = room_of_use[at];
    }
    draft.add(std::move(kernel));
  }
  return draft;
}

// For each value, the number of bytes that the pass's operands reach into it.
std::vector<Bytes> bytes_by_use(std::vector<Kernel>& kernels, const std::vector<ValueUse>& uses) {
  std::vector<Bytes> bytes(uses.size(), 0);
  for (Kernel& kernel : kernels) {
    for (const OperandUse& operand : operands_of(kernel)) {
      if (operand.place->space != Space::value) continue;
      const auto use = use_of(uses, operand.place->index);
      Bytes& most = bytes[static_cast<std::size_t>(use - uses.begin())];
      most = std::max(most, operand.place->offset + operand.bytes);
    }
  }
  return bytes;
}

}  // namespace

Place PassDraft::room(Bytes bytes) {
  rooms_.push_back(bytes);
  return {.space = Space::workspace, .index = static_cast<int>(rooms_.size()) - 1};
}

namespace {

void keep_wanted(PassDraft& pass, const std::set<int>& wanted_values) {
  std::set<Whereabouts> wanted;
  for (const int value : wanted_values) wanted.insert({Space::value, value});
  std::vector<Kernel> kept;
  std::vector<Kernel>& kernels = pass.kernels();
  for (std::size_t i = kernels.size(); i-- > 0;) {
    const std::vector<OperandUse> operands = operands_of(kernels[i]);
    const bool is_wanted = std::ranges::any_of(operands, [&](const OperandUse& operand) {
      const Space space = operand.place->space;
      return operand.access != Access::read &&
             (space == Space::gradient || space == Space::word || wanted.contains(whereabouts_of(*operand.place)));
    });
    if (!is_wanted) continue;
    for (const OperandUse& operand : operands) {
      if (operand.access != Access::write) wanted.insert(whereabouts_of(*operand.place));
    }
    kept.push_back(std::move(kernels[i]));
  }
  std::ranges::reverse(kept);
  kernels = std::move(kept);
}

}  // namespace

void keep_wanted(UnitDraft& draft, const std::set<int>& wanted_values) {
  for (PassDraft* pass : {&draft.backward, &draft.backward_in_pieces}) keep_wanted(*pass, wanted_values);
  const std::vector<ValueUse> uses = uses_of(draft.backward.kernels());
  std::erase_if(draft.unit.saved, [&](int value) { return use_of(uses, value) == uses.end(); });
}

UnitCode compile_unit(UnitDraft& draft, const ScratchBound& scratch) {
  Unit& unit = draft.unit;
  UnitCode code;
  unit.forward = uses_of(draft.forward.kernels());
  unit.backward = uses_of(draft.backward.kernels());
  // A frozen head reads its input only to make logits again.
  for (const ValueUse& use : uses_of(draft.backward_in_pieces.kernels())) {
    if (use_of(unit.backward, use.value) == unit.backward.end()) unit.backward.push_back(use);
  }
  const auto compile = [&](Pass pass, PassDraft kernels, const std::vector<ValueUse>& uses, Bytes& workspace) {
    CompiledPass compiled = compile_pass(std::move(kernels), uses, scratch);
    workspace = std::max(workspace, compiled.workspace);
    code[pass] = std::move(compiled.list);
    return compiled.work;
  };
  if (!unit.saved.empty() && unit.saved_piece == 0) {
    compile(Pass::recompute, recompute_of(draft.forward, unit, bytes_by_use(draft.forward.kernels(), unit.forward), unit.forward),
            unit.forward, unit.forward_workspace);
  }
  unit.forward_work = compile(Pass::forward, draft.forward, unit.forward, unit.forward_workspace);
  unit.backward_work = compile(Pass::backward, draft.backward, unit.backward, unit.backward_workspace);
  compile(Pass::forward_in_pieces, draft.forward_in_pieces, unit.forward, unit.forward_workspace);
  compile(Pass::backward_in_pieces, draft.backward_in_pieces, unit.backward, unit.backward_workspace);
  return code;
}

}  // namespace spillway
