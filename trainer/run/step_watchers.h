// Those who look on while steps go by. A run has a list of them, and each is told of every step, in the order of the list.
// Not here: what keeps the state (run_checkpoints.h).
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
#include "trainer/data/data.h"
#include "trainer/options/options.h"
#include "trainer/plan/planned_run.h"
#include "trainer/show/log.h"
#include "trainer/show/progress.h"

namespace spillway {

class StepWatcher {
 public:
  virtual ~StepWatcher() = default;
  // Whether the state after `step` (from 1) is wanted: no later one is then under way.
  virtual bool pauses_after(std::int64_t) const { return false; }
  // A step as it ended. What is found out goes into the record, for those who come later in the list.
  virtual void watch(StepRecord& record, const StepOutcome& outcome, Executor& executor) = 0;
  // After the last step, or where the run is interrupted.
  virtual void finish() {}
};

using StepWatchers = std::vector<std::unique_ptr<StepWatcher>>;

// The loss on --eval-data, and samples of text, where they are asked for. InputError where the data or the prompt do not fit.
StepWatchers watchers_of_the_model(const RunOptions& options, const PreparedModel& model);

// What was seen of the drive, for plans of later runs; and whether the kept profile of the machine can be right.
std::unique_ptr<StepWatcher> drive_watcher(const RunOptions& options, const PlannedRun& planned, const PreparedModel& model,
                                           const LogSink& say);

// log.jsonl in `log_path`, where there is one, and the same for others, --csv and --tensorboard: cut back to `step`, from which
// the run goes on. What only shows the training is not worth ending it: where its file cannot be written, it goes on without.
StepWatchers watchers_that_write(const RunOptions& options, const std::optional<std::string>& log_path, std::int64_t step,
                                 const LogSink& say);

// The line of progress, and what is said where steps take longer than planned.
StepWatchers watchers_that_show(const RunOptions& options, const PlannedRun& planned, const PreparedModel& model,
                                Progress& progress);

}  // namespace spillway
