// Seconds that operations take alone on a machine, and how fast lanes are beside each other.
// Not here: a timeline (simulate.h), the least that a step takes (bound.h).
#pragma once

#include <array>
#include <vector>

#include "memory/plan/machine.h"
#include "memory/plan/plan.h"

namespace spillway {

using PerLane = By<Lane, double>;

// A set of lanes, a bit each.
using LaneSet = unsigned;
constexpr LaneSet set_of(Lane lane) { return 1U << static_cast<int>(lane); }

// [operations of the step] seconds of each at its lane's own rate.
std::vector<double> seconds_alone(const Plan& plan, const UnitGraph& graph, const MachineProfile& machine);

// Speeds of lanes beside each other, as shares of their own rates.
class LaneSpeeds {
 public:
  explicit LaneSpeeds(const MachineProfile& machine);

  // Speeds while the lanes of the set have work, and no others.
  const PerLane& while_running(LaneSet running) const { return speeds_[running]; }

 private:
  std::array<PerLane, 1U << kAll<Lane>.size()> speeds_;
};

}  // namespace spillway
