// Choices as they are -> a plan, without a search.
#pragma once

#include "memory/passes/packing.h"
#include "memory/passes/schedule.h"
#include "memory/passes/waits.h"

namespace spillway {

inline Plan compiled(const UnitGraph& graph, const Choices& choices) {
  Plan plan = build_schedule(graph, choices);
  pack(plan);
  derive_waits(plan);
  return plan;
}

}  // namespace spillway
