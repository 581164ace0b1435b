// plan.json: what the plan is, for people and scripts, and enough to make exactly it again.
// Not here: the table (trainer/show/plan_report.h).
#pragma once

#include <optional>
#include <string>

#include "memory/planner.h"
#include "trainer/machine/drive_rates.h"
#include "trainer/options/options.h"
#include "trainer/plan/prepared_run.h"

namespace spillway {

// The fields of the command line's contract. `flags` is the command line that gives this plan on the same machine profile.
std::string plan_json(const PlannedRun& run, const PreparedModel& model, const RunOptions& options);

// The plan of a file made by plan_json, compiled again from its choices. InputError where it is of another model, batch or state
// form, does not fit the budgets, or does not come out with the peaks that the file names.
PlanOutcome outcome_from_file(const std::string& file, const GraphCandidates& graphs, const MachineProfile& machine,
                              const PlanRequest& request);

// The machine that the plan of a file was made for; nothing where the file does not say.
std::optional<MeasuredProfile> machine_of_plan(const std::string& file);

}  // namespace spillway
