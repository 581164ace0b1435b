// The search for the choices that fit the budgets and take the least time.
// Not here: what a choice means (choices.h), how a plan is built (schedule.h, packing.h, waits.h), time (simulate.h).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "memory/plan/machine.h"
#include "memory/plan/plan.h"
#include "memory/search/pair_runner.h"
#include "memory/search/plan_request.h"
#include "memory/search/simulate.h"

namespace spillway {

struct PlanOutcome {
  std::optional<Plan> plan;  // packed, with waits; absent where nothing fits, or where only its time was asked for
  Prediction prediction;     // step_s 0: nothing fits
  Outline outline;           // the plan's outline
  Filled filled;             // and the result of filling it
  // If nothing fits: the tightest plan found, and what it lacks.
  Tier short_tier = Tier::device;
  Bytes needed = 0, budget = 0;
  std::string refusal;  // why a forced combination is refused; the fields above then say nothing. Empty: it is not
  int plans_built = 0;
};

PlanOutcome make_plan(const GraphCandidates& graphs, const MachineProfile& machine, const PlanRequest& request,
                      const PairRunner& run_pair = one_after_the_other);

}  // namespace spillway
