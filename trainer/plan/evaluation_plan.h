// A plan that only evaluates: it has the weights and one forward, and nothing else that training needs.
// Not here: the evaluation program itself (memory/passes/schedule.h), plans that train (memory/search/planner.h).
#pragma once

#include <string_view>

#include "memory/search/planner.h"

namespace spillway {

// Words for the error if the plan does not fit.
struct PlanPurpose {
  std::string_view name;     // "evaluation"
  std::string_view smaller;  // what would need less: "shorter sequences"
};

// As many weights of that type as fit rest on the device, the others on the host if it has a budget, then on NVMe. `graph` has no
// fused head. Throws BudgetError if the plan does not fit.
Plan evaluation_plan(const UnitGraph& graph, DType type, const Budgets& budgets, PlanPurpose purpose);

}  // namespace spillway
