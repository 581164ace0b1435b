// Makes a plan, or its tasks alone, from given choices, without a search.
#pragma once

#include "memory/passes/packing.h"
#include "memory/passes/resident_buffers.h"
#include "memory/passes/schedule.h"
#include "memory/passes/task_list.h"
#include "memory/passes/waits.h"

namespace spillway {

inline Plan compiled(const UnitGraph& graph, const Choices& choices) {
  Plan plan = build_schedule(graph, choices);
  pack(plan);
  derive_waits(plan);
  return plan;
}

inline TaskList tasks_of(const UnitGraph& graph, const Choices& choices) {
  Plan plan;
  plan.choices = choices;
  add_resident_buffers(graph, plan);
  return step_tasks(graph, plan);
}

}  // namespace spillway
