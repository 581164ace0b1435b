// A plan that only evaluates: the weights, one forward, and nothing of what training needs beside them.
// Not here: the evaluation program itself (memory/passes/schedule.h), plans that train (memory/search/planner.h).
#pragma once

#include <string_view>

#include "memory/search/planner.h"

namespace spillway {

// What the plan is for, in the words of the error where it does not fit.
struct PlanPurpose {
  std::string_view name;     // "evaluation"
  std::string_view smaller;  // what would take less: "shorter sequences"
};

// Weights of that type rest on the device as far as they fit, the others on NVMe. `graph` has no fused head. BudgetError where
// it does not fit.
Plan evaluation_plan(const UnitGraph& graph, DType type, const Budgets& budgets, PlanPurpose purpose);

}  // namespace spillway
