// What of a plan may rest on a tier, in the order in which it is put there.
// Not here: how much of it does (filling.h).
#pragma once

#include <functional>
#include <vector>

#include "memory/plan.h"
#include "memory/search/outline.h"
#include "memory/search/plan_request.h"

namespace spillway {

// Items of one kind: the bytes of each, and how the first so many of them are put there.
struct Items {
  std::vector<Bytes> sizes;
  std::function<void(Choices&, int)> raise_first;
};

// On the device, of an outline's choices with as little there as there may be.
std::vector<Items> items_of_device(const UnitGraph& graph, const PlanRequest& request, const Outline& outline,
                                   const Choices& choices);
// On a tier between the device and those where the choices have them.
std::vector<Items> items_of(Tier between, const UnitGraph& graph, const PlanRequest& request, const Choices& choices);

// Kind after kind, as many items as there is room for; what one leaves is the next one's.
std::vector<int> most_within(const std::vector<Items>& of_kinds, Bytes room);

// What a block takes of a tier where it rests there.
struct BlockBytes {
  Bytes weight = 0, gradient = 0, optimizer = 0;
};
BlockBytes bytes_of(const ParameterBlock& block, const PlanRequest& request, const Choices& choices);

// A unit's values that live from its forward to its backward, in one micro-batch: those that it is the first to write.
struct UnitValues {
  Bytes saved = 0, boundary = 0;
};
std::vector<UnitValues> values_of_units(const UnitGraph& graph);
// Of these, what a unit spills, in all of a group.
Bytes spilled_bytes(const UnitValues& values, const Choices& choices, int unit);

// What happens to a unit's saved values that do not stay.
Saved spare_of(const Unit& unit, const Outline& outline);

}  // namespace spillway
