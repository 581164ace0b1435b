// A plan that only evaluates: the weights, one forward, and nothing of what training needs beside them.
// Not here: the evaluation program itself (memory/schedule.h), plans that train (memory/planner.h).
#pragma once

#include "memory/planner.h"

namespace spillway {

// Weights rest on the device as far as they fit, the others on NVMe; 2 bytes a parameter (4 with fp32). `graph` has a tiled head.
// BudgetError where it does not fit.
Plan evaluation_plan(const UnitGraph& graph, StateForm form, const Budgets& budgets);

}  // namespace spillway
