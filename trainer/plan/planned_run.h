// A run as it is planned: for which machine, what was asked of the planner, what it answered, and what follows for durability.
// Not here: which machine that is, and what would fit where the run does not (prepared_run.h).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "memory/search/planner.h"
#include "trainer/machine/drive_rates.h"
#include "trainer/options/options.h"
#include "trainer/plan/durability.h"
#include "trainer/plan/prepared_model.h"

namespace spillway {

// As typed, and quoted for a shell where that must be: "--device-memory 512MiB".
using FlagList = std::vector<std::string>;

struct WouldFit {
  std::vector<FlagList> lists;  // each was planned and fits
  Where where = Where::here;    // anywhere: only on a machine with more memory or disk than the one planned for
};

// Flags with which the same run would be faster, and by how much.
struct Lift {
  std::vector<std::string> flags;
  std::string costs;  // what they change beside the time
  double step_s = 0, bound_s = 0;
};

struct PlannedRun {
  MeasuredProfile measured;  // the machine as it was probed, and what runs have seen of its drive
  MachineProfile machine;    // that is planned for: what one rank has of it, its drive as_seen()
  PlanRequest request;
  PlanOutcome outcome;
  std::optional<DurabilityPlan> durability;  // of a run that is given --save
  WouldFit would_fit;                        // where the plan does not
  std::vector<Lift> lifts;                   // of `spillway plan` (plan_lifts.h)
};

// Plans for a machine whose profile is at hand, or takes --plan FILE. InputError where a forced combination cannot be exact.
// Where nothing fits, what would is not looked for.
PlannedRun plan_run_on(const MeasuredProfile& measured, const RunOptions& options, const PreparedModel& model, Where where);

}  // namespace spillway
