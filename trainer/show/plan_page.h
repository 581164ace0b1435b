// A plan as one self-contained page: its figures, each tier over the step's time, the lanes as a timeline.
// Not here: the table of the terminal (plan_report.h), a run beside its plan (run_report.h).
#pragma once

#include <string>

#include "trainer/plan/planned_run.h"

namespace spillway {

// Where nothing fits: what lacks, and what would fit.
std::string plan_page(const PlannedRun& run, const PreparedModel& model, const RunOptions& options);

}  // namespace spillway
