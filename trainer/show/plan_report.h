// A plan in words: the table of `spillway plan`, and the lines that train begins with.
// Not here: the figures (trainer/plan/plan_figures.h), the page (plan_page.h).
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "trainer/plan/plan_figures.h"
#include "trainer/plan/planned_run.h"

namespace spillway {

// A few lines: where things rest, the predicted step and what binds it.
std::string plan_summary(const PlannedRun& run, const PreparedModel& model);

// Tiers, lanes, the step and the command line, within 100 columns. Where nothing fits: what lacks, and what would fit.
std::string plan_table(const PlannedRun& run, const PreparedModel& model, const RunOptions& options);

// What the table says beside tiers and lanes, a name and a sentence each: model, machine, choices, step, bound, wear.
std::vector<std::pair<std::string, std::string>> plan_facts(const PlannedRun& run, const PreparedModel& model,
                                                            const RunOptions& options);

// Where nothing fits: the tier, what it needs and has.
std::string lacks(const PlanOutcome& outcome);

// "1.25 TFLOP", "3.2 GiB"; "410 GFLOP/s", "1.4 GiB/s".
std::string work_of(const LaneFigures& lane);
std::string rate_of(const LaneFigures& lane);

}  // namespace spillway
