// Turns the flags into the planner's request. Not here: the planner's answer (planned_run.h).
#pragma once

#include "memory/search/planner.h"
#include "trainer/options/options.h"

namespace spillway {

// Throws InputError if a forced combination cannot be exact.
PlanRequest plan_request(const RunOptions& options, const Budgets& budgets);

}  // namespace spillway
