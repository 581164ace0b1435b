// A plan as one self-contained page: its figures, each tier over the step's time, the lanes as a timeline.
// Not here: the table for the terminal (plan_report.h), a run beside its plan (run_report.h).
#pragma once

#include <string>

#include "trainer/plan/planned_run.h"

namespace spillway {

// If nothing fits, the page shows what is short and what would fit.
std::string plan_page(const PlannedRun& run, const PreparedModel& model, const RunOptions& options);

}  // namespace spillway
