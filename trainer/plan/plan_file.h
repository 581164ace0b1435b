// Writes plan.json: a description of the plan for people and scripts, complete enough to make exactly this plan again.
// Not here: making it again (saved_plan.h), the table (trainer/show/plan_report.h).
#pragma once

#include <string>

#include "trainer/options/options.h"
#include "trainer/plan/planned_run.h"

namespace spillway {

// The fields follow the command line's contract. `flags` is the command line that gives this plan on the same machine profile.
std::string plan_json(const PlannedRun& run, const PreparedModel& model, const RunOptions& options);

}  // namespace spillway
