// From options to a plan, for plan, train and verify: the machine is looked up or measured, the run is planned and, if it does
// not fit, flags that fit are offered.
// Not here: running the plan (trainer/run/trainer.h), showing it (trainer/show/plan_report.h).
#pragma once

#include "nvme/io_queue.h"
#include "trainer/options/options.h"
#include "trainer/plan/planned_run.h"
#include "trainer/plan/prepared_model.h"

namespace spillway {

// Plans, or takes --plan FILE. For a file nothing is measured: its prediction uses the kept profile, or else the profile that the
// plan was made with. Throws InputError if a forced combination cannot be exact. `say` hears of work that takes long.
PlannedRun plan_run(const RunOptions& options, const PreparedModel& model, Where where = Where::here, const LogSink& say = {});

// Throws the error of a run that does not fit: the tier, the missing bytes, and flags that would fit.
[[noreturn]] void throw_does_not_fit(const PlannedRun& run, const By<Tier, std::string>& whose = {});

}  // namespace spillway
