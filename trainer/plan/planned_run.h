// A run as it is planned: its machine, the planner's request and answer, and the resulting durability.
// Not here: the choice of the machine, and flags for a run that does not fit (prepared_run.h).
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

// Flags as typed, quoted for a shell if necessary: "--device-memory 512MiB".
using FlagList = std::vector<std::string>;

struct WouldFit {
  std::vector<FlagList> lists;  // each of these was planned and fits
  Where where = Where::here;    // anywhere: only on a machine with more memory or disk than the one planned for
};

// Flags that make the same run faster, and by how much.
struct Lift {
  std::vector<std::string> flags;
  std::string costs;  // other effects of the flags
  double step_s = 0, bound_s = 0;
};

struct PlannedRun {
  MeasuredProfile measured;  // the machine as it was probed, with the rates of its drive that runs have seen
  MachineProfile machine;    // the machine of the plan: one rank's share of it, its drive as_seen()
  PlanRequest request;
  PlanOutcome outcome;
  std::optional<DurabilityPlan> durability;  // for a run with --save
  WouldFit would_fit;                        // if the plan does not fit
  std::vector<Lift> lifts;                   // for `spillway plan` (plan_lifts.h)
};

// Plans for a machine whose profile is at hand, or takes --plan FILE. Throws InputError if a forced combination cannot be exact.
// If nothing fits, does not search for flags that would.
PlannedRun plan_run_on(const MeasuredProfile& measured, const RunOptions& options, const PreparedModel& model, Where where);

}  // namespace spillway
