// What the planner is asked, as the flags say it. Not here: what it answers (planned_run.h).
#pragma once

#include "memory/search/planner.h"
#include "trainer/options/options.h"

namespace spillway {

// InputError where a forced combination cannot be exact.
PlanRequest plan_request(const RunOptions& options, const Budgets& budgets);

}  // namespace spillway
