#include "trainer/run/step_watchers.h"

#include <fmt/core.h>

#include <utility>

#include "memory/base/error.h"
#include "memory/search/simulate.h"
#include "trainer/machine/drive_fit.h"
#include "trainer/machine/drive_watch.h"
#include "trainer/machine/profile_file.h"
#include "trainer/run/sampling.h"
#include "trainer/show/csv_log.h"
#include "trainer/show/plan_drift.h"
#include "trainer/show/tensorboard.h"
#include "trainer/words/quantity.h"

namespace spillway {
namespace {

class EvaluationWatcher final : public StepWatcher {
 public:
  explicit EvaluationWatcher(RunEvaluations& evaluations) : evaluations_(evaluations) {}
  bool pauses_after(std::int64_t step) const override { return evaluations_.is_due_after(step); }
  void watch(StepRecord& record, const StepOutcome& outcome, Executor& executor) override {
    if (!pauses_after(outcome.step)) return;
    // If it is interrupted, the step gets no evaluation, and the run saves.
    record.eval_loss = evaluations_.evaluate(outcome.step, executor);
    if (record.eval_loss && evaluations_.best()) record.best = evaluations_.best()->step;
  }

 private:
  RunEvaluations& evaluations_;
};

class SampleWatcher final : public StepWatcher {
 public:
  SampleWatcher(const RunOptions& options, const PreparedModel& model)
      : interval_(options.log.sample_interval), samples_(options, model.seq_length(), model.model().config) {}
  bool pauses_after(std::int64_t step) const override { return step % interval_ == 0; }
  void watch(StepRecord& record, const StepOutcome& outcome, Executor& executor) override {
    if (pauses_after(outcome.step)) record.sample = samples_.sample(executor);
  }

 private:
  std::int64_t interval_;
  TrainingSamples samples_;
};

class DriveWatcher final : public StepWatcher {
 public:
  DriveWatcher(const RunOptions& options, const PlannedRun& planned, const PreparedModel& model, LogSink say)
      : options_(options),
        planned_(planned),
        model_(model),
        say_(std::move(say)),
        drive_(*planned.outcome.plan, planned.machine) {}
  void watch(StepRecord& record, const StepOutcome& outcome, Executor&) override {
    lengths_.add(record.step_s);
    ++steps_;
    const auto moved = [&](Lane lane) { return outcome.moved[lane]; };
    keep(drive_.observe(outcome.timeline, moved(Lane::nvme_read), moved(Lane::nvme_write)));
  }
  void finish() override {
    keep(drive_.finish());
    forget_contradicted_profile();
  }

 private:
  // A step cannot be shorter than the work of a lane at the profile's rates. If steps are shorter, the profile was measured in a
  // slow hour.
  void forget_contradicted_profile() const {
    constexpr std::int64_t kFewest = 5;
    constexpr double kContradiction = 1.25;  // times
    if (!options_.memory.profile.empty() || !options_.memory.plan.empty() || steps_ < kFewest) return;
    const double median_s = lengths_.median(), bound_s = planned_.outcome.prediction.bound.of_step().seconds;
    if (bound_s < kContradiction * median_s) return;
    const auto cache = profile_cache(model_.pool().threads(), options_.memory.nvme);
    if (!cache || !forget_profile(*cache)) return;
    say_(
        fmt::format("note: steps take {}, and by the profile of this machine none is shorter than {}: it was measured in a slow "
                    "hour, and the next plan or run measures it again",
                    rounded_seconds(median_s), rounded_seconds(bound_s)));
  }
  // If no profile of this drive is kept, nobody would look for its rates.
  void keep(const std::optional<SeenDrive>& seen) const {
    if (!seen) return;
    const auto cache = profile_cache(model_.pool().threads(), options_.memory.nvme, options_.gpu);
    if (!cache) return;
    const Plan& plan = *planned_.outcome.plan;
    keep_seen(*cache, fitted(*seen, planned_.measured, lengths_.median(), [&](const MachineProfile& machine) {
      return seconds_of_step(plan, model_.of(plan).graph, machine);
    }));
  }

  const RunOptions& options_;
  const PlannedRun& planned_;
  const PreparedModel& model_;
  LogSink say_;
  DriveWatch drive_;
  StepLengths lengths_;
  std::int64_t steps_ = 0;
};

class LogWatcher final : public StepWatcher {
 public:
  LogWatcher(const std::string& path, std::int64_t step) : log_(path, step) {}
  void watch(StepRecord& record, const StepOutcome&, Executor&) override { log_.append(record); }

 private:
  LogWriter log_;
};

template <typename Log>
class CurveWatcher final : public StepWatcher {
 public:
  CurveWatcher(const std::string& path, std::int64_t step, LogSink say) : log_(std::in_place, path, step), say_(std::move(say)) {}
  void watch(StepRecord& record, const StepOutcome&, Executor&) override {
    if (!log_) return;
    try {
      log_->append(record);
    } catch (const IoError& error) {
      log_.reset();
      say_(fmt::format("note: {}: no more steps are written there; the run goes on", error.what()));
    }
  }

 private:
  std::optional<Log> log_;
  LogSink say_;
};

class ProgressWatcher final : public StepWatcher {
 public:
  explicit ProgressWatcher(Progress& progress) : progress_(progress) {}
  void watch(StepRecord& record, const StepOutcome&, Executor&) override { progress_.step(record); }

 private:
  Progress& progress_;
};

class DriftWatcher final : public StepWatcher {
 public:
  DriftWatcher(const RunOptions& options, const PlannedRun& planned, const PreparedModel& model, Progress& progress)
      : progress_(progress),
        drift_(*planned.outcome.plan, model.of(*planned.outcome.plan).graph, planned.outcome.prediction,
               options.log.drift_threshold) {}
  void watch(StepRecord& record, const StepOutcome& outcome, Executor&) override {
    if (const auto drift = drift_.observe(record.step_s, outcome.timeline)) progress_.message("note: " + *drift);
    if (record.sample) progress_.message("sample: " + *record.sample);
  }

 private:
  Progress& progress_;
  PlanDrift drift_;
};

}  // namespace

StepWatchers watchers_of_the_model(const RunOptions& options, const PreparedModel& model, RunEvaluations* evaluations) {
  StepWatchers watchers;
  if (evaluations != nullptr) watchers.push_back(std::make_unique<EvaluationWatcher>(*evaluations));
  if (options.log.sample_interval > 0) watchers.push_back(std::make_unique<SampleWatcher>(options, model));
  return watchers;
}

std::unique_ptr<StepWatcher> drive_watcher(const RunOptions& options, const PlannedRun& planned, const PreparedModel& model,
                                           const LogSink& say) {
  return std::make_unique<DriveWatcher>(options, planned, model, say);
}

StepWatchers watchers_that_write(const RunOptions& options, const std::optional<std::string>& log_path, std::int64_t step,
                                 const LogSink& say) {
  StepWatchers watchers;
  if (log_path) watchers.push_back(std::make_unique<LogWatcher>(*log_path, step));
  if (const std::string& csv = options.log.csv; !csv.empty())
    watchers.push_back(std::make_unique<CurveWatcher<CsvLog>>(csv, step, say));
  if (const std::string& directory = options.log.tensorboard; !directory.empty())
    watchers.push_back(std::make_unique<CurveWatcher<TensorboardLog>>(directory, step, say));
  return watchers;
}

StepWatchers watchers_that_show(const RunOptions& options, const PlannedRun& planned, const PreparedModel& model,
                                Progress& progress) {
  StepWatchers watchers;
  watchers.push_back(std::make_unique<ProgressWatcher>(progress));
  watchers.push_back(std::make_unique<DriftWatcher>(options, planned, model, progress));
  return watchers;
}

}  // namespace spillway
