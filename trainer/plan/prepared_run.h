// From options to a plan, as plan, train and verify share it: the machine is looked up or measured, the run is planned, and where
// it does not fit, what would is said. Not here: running the plan (trainer/run/trainer.h), showing it
// (trainer/show/plan_report.h).
#pragma once

#include "nvme/io_queue.h"
#include "trainer/options/options.h"
#include "trainer/plan/planned_run.h"
#include "trainer/plan/prepared_model.h"

namespace spillway {

// Plans, or takes --plan FILE, for which nothing is measured: what it predicts then comes from the profile that is kept, or else
// from the one that the plan was made with. InputError where a forced combination cannot be exact. `say` is told what takes long.
PlannedRun plan_run(const RunOptions& options, const PreparedModel& model, Where where = Where::here, const LogSink& say = {});

// The error of a run that does not fit: the tier, what lacks, what would fit.
[[noreturn]] void throw_does_not_fit(const PlannedRun& run);

}  // namespace spillway
