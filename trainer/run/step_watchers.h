// Watchers of a run's steps. A run has a list of them and tells each of every step, in the order of the list.
// Not here: saving the state (run_checkpoints.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "nvme/io_queue.h"
#include "offload/executor.h"
#include "trainer/options/options.h"
#include "trainer/plan/planned_run.h"
#include "trainer/run/run_evaluations.h"
#include "trainer/show/log.h"
#include "trainer/show/progress.h"

namespace spillway {

class StepWatcher {
 public:
  virtual ~StepWatcher() = default;
  // Returns true if it needs the state after `step` (from 1): then no later step is under way.
  virtual bool pauses_after(std::int64_t) const { return false; }
  // Called when a step has ended. It may add findings to the record, for watchers later in the list.
  virtual void watch(StepRecord& record, const StepOutcome& outcome, Executor& executor) = 0;
  // Called after the last step, or when the run is interrupted.
  virtual void finish() {}
};

using StepWatchers = std::vector<std::unique_ptr<StepWatcher>>;

// Evaluations, unless null, and samples of text, if asked for. Throws InputError if the prompt does not fit.
StepWatchers watchers_of_the_model(const RunOptions& options, const PreparedModel& model, RunEvaluations* evaluations);

// Observes the drive's rates for the plans of later runs, and checks whether the kept profile of the machine can be right.
std::unique_ptr<StepWatcher> drive_watcher(const RunOptions& options, const PlannedRun& planned, const PreparedModel& model,
                                           const LogSink& say);

// Write log.jsonl to `log_path`, if given, and the tables and curves of --csv and --tensorboard. All are cut back to `step`, from
// which the run goes on. A failed write to --csv or --tensorboard must not end the training: the run goes on without that file.
StepWatchers watchers_that_write(const RunOptions& options, const std::optional<std::string>& log_path, std::int64_t step,
                                 const LogSink& say);

// The progress line, and a message if steps take longer than planned.
StepWatchers watchers_that_show(const RunOptions& options, const PlannedRun& planned, const PreparedModel& model,
                                Progress& progress);

}  // namespace spillway
