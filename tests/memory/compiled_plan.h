// Choices as they are -> a plan, without a search.
#pragma once

#include "memory/packing.h"
#include "memory/schedule.h"
#include "memory/waits.h"

namespace spillway {

inline Plan compiled(const UnitGraph& graph, const Choices& choices) {
  Plan plan = build_schedule(graph, choices);
  pack(plan);
  derive_waits(plan);
  return plan;
}

}  // namespace spillway
