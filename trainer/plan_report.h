// A plan in words: the table of `spillway plan`, and the lines that train begins with.
#pragma once

#include <string>

#include "trainer/prepared_run.h"

namespace spillway {

// A few lines: where things rest, the predicted step and what binds it.
std::string plan_summary(const PlannedRun& run, const PreparedModel& model);

// Tiers, lanes, the step and the command line, within 100 columns.
std::string plan_table(const PlannedRun& run, const PreparedModel& model, const RunOptions& options);

}  // namespace spillway
