// Predicts the timeline of a plan's step on a machine.
#pragma once

#include "memory/machine.h"
#include "memory/plan.h"
#include "memory/search/bound.h"
#include "memory/timeline.h"

namespace spillway {

struct Prediction {
  Timeline timeline;                        // of one step among equal ones
  double step_s = 0;
  PerLane busy_s{};                         // work of the lane at its own rate, in all turns
  StepBound bound;                          // no schedule of the plan's choices is faster; of predict()
};

// Steps follow each other as the executor runs them; the first ones, which differ, are left out.
Prediction simulate(const Plan& plan, const UnitGraph& graph, const MachineProfile& machine);

// The same with the bound, which a search that weighs plans has no use for.
Prediction predict(const Plan& plan, const UnitGraph& graph, const MachineProfile& machine);

}  // namespace spillway
