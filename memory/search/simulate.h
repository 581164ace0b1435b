// Predicts the timeline of a plan's step on a machine.
#pragma once

#include "memory/plan/machine.h"
#include "memory/plan/plan.h"
#include "memory/plan/timeline.h"
#include "memory/search/bound.h"

namespace spillway {

struct Prediction {
  Timeline timeline;  // of one step among equal ones
  double step_s = 0;
  PerLane busy_s{};  // seconds of each lane's work at its own rate, in all turns
  StepBound bound;   // no schedule of the plan's choices is faster
};

// Predicts a step among others that follow each other as the executor runs them; the first steps, which differ, are left out.
Prediction predict(const Plan& plan, const UnitGraph& graph, const MachineProfile& machine);

// The step's seconds alone: a search that weighs plans needs no more.
double seconds_of_step(const Plan& plan, const UnitGraph& graph, const MachineProfile& machine);

}  // namespace spillway
