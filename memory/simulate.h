// Predicts the timeline of a plan's step on a machine.
#pragma once

#include <array>
#include <vector>

#include "memory/machine.h"
#include "memory/plan.h"
#include "memory/timeline.h"

namespace spillway {

struct Prediction {
  Timeline timeline;                        // of one step among equal ones
  double step_s = 0;
  std::array<double, kLanes> busy_s{};      // work of the lane at its own rate
  double bound_s = 0;                       // no schedule of this work is faster
  Lane binding_lane = Lane::compute;        // that the bound comes from
};

struct Bound {
  double seconds = 0;
  Lane lane = Lane::compute;
};

// What the lanes' work takes at least on the machine, and the lane that makes it so long.
Bound bound_of(const std::array<double, kLanes>& busy_s, const MachineProfile& machine);

// Steps follow each other as the executor runs them; the first ones, which differ, are left out.
Prediction simulate(const Plan& plan, const UnitGraph& graph, const MachineProfile& machine);

}  // namespace spillway
