// The items of a plan that may rest on a tier, in the order in which they are put there.
// Not here: how many of them do (filling.h).
#pragma once

#include <functional>
#include <vector>

#include "memory/plan/plan.h"
#include "memory/search/outline.h"
#include "memory/search/plan_request.h"

namespace spillway {

// Items of one kind: the bytes of each, and a function that puts the first k of them on the tier in a plan's choices.
struct Items {
  std::vector<Bytes> sizes;
  std::function<void(Choices&, int)> raise_first;
};

// Items that may rest on the device. `choices`: the outline's, with as little there as possible.
std::vector<Items> items_of_device(const UnitGraph& graph, const PlanRequest& request, const Outline& outline,
                                   const Choices& choices);
// Items that may rest on a tier between the device and the tiers where the choices have them.
std::vector<Items> items_of(Tier between, const UnitGraph& graph, const PlanRequest& request, const Choices& choices);

// How many items of each kind fit in `room` bytes, kind after kind; the next kind gets the room that one leaves.
std::vector<int> most_within(const std::vector<Items>& of_kinds, Bytes room);

// Bytes that a block's arrays take of the tier on which they rest.
struct BlockBytes {
  Bytes weight = 0, gradient = 0, optimizer = 0;
};
BlockBytes bytes_of(const ParameterBlock& block, const PlanRequest& request, const Choices& choices);

// Bytes of one micro-batch's values that live from a unit's forward to its backward: those that the unit is the first to write.
struct UnitValues {
  Bytes saved = 0, boundary = 0;
};
std::vector<UnitValues> values_of_units(const UnitGraph& graph);
// Bytes of them that a unit spills, for all micro-batches of a group.
Bytes spilled_bytes(const UnitValues& values, const Choices& choices, int unit);

// The treatment of a unit's saved values that do not stay on the device.
Saved spare_of(const Unit& unit, const Outline& outline);

}  // namespace spillway
