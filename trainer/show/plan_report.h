// Describes a plan in words: the table of `spillway plan`, and the first lines of train.
// Not here: the figures (trainer/plan/plan_figures.h), the page (plan_page.h).
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "trainer/plan/plan_figures.h"
#include "trainer/plan/planned_run.h"

namespace spillway {

// A few lines: the tiers of the state, the predicted step and the bound that binds it.
std::string plan_summary(const PlannedRun& run, const PreparedModel& model);

// Tiers, lanes, the step and the command line, within 100 columns. If nothing fits: what is short and what would fit.
std::string plan_table(const PlannedRun& run, const PreparedModel& model, const RunOptions& options);

// The rest of the table, a name and a sentence for each fact: model, machine, choices, step, bound, wear.
std::vector<std::pair<std::string, std::string>> plan_facts(const PlannedRun& run, const PreparedModel& model,
                                                            const RunOptions& options);

// If nothing fits: the short tier, its needed bytes and its budget.
std::string lacks(const PlanOutcome& outcome);

// "1.25 TFLOP", "3.2 GiB"; "410 GFLOP/s", "1.4 GiB/s".
std::string work_of(const LaneFigures& lane);
std::string rate_of(const LaneFigures& lane);

}  // namespace spillway
