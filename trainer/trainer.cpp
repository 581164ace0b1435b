#include "trainer/trainer.h"

#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "memory/error.h"
#include "trainer/checkpoint.h"
#include "trainer/data.h"
#include "trainer/evaluation.h"
#include "trainer/interrupt.h"
#include "trainer/log.h"
#include "trainer/plan_drift.h"
#include "trainer/plan_file.h"
#include "trainer/plan_report.h"
#include "trainer/prepared_run.h"
#include "trainer/progress.h"
#include "trainer/run_directory.h"
#include "trainer/step_loop.h"

namespace spillway {
namespace {

class TrainingRun {
 public:
  explicit TrainingRun(const ResolvedOptions& resolved)
      : options_(resolved.options), model_(options_), planned_(planned(options_, model_)), plan_(*planned_.outcome.plan), compiled_(model_.of(plan_)),
        data_(training_data(options_, model_.seq_length(), model_.model().config.vocab)),
        progress_(STDOUT_FILENO, progress_style_of(STDOUT_FILENO), options_.batch.train_iters, options_.log.log_interval) {
    validate(plan_, compiled_.graph);
    if (!options_.checkpoint.load.empty()) {
      loaded_ = newest_checkpoint(options_.checkpoint.load);
      if (loaded_->step > options_.batch.train_iters) {
        throw InputError(fmt::format("--train-iters: found {}, allowed: at least {}, the step of {}", options_.batch.train_iters, loaded_->step, loaded_->path));
      }
    }
    if (!options_.data.eval_data.empty()) {
      DataRequest request = evaluation_data(options_, model_.seq_length(), model_.model().config.vocab);
      request.micro_batches = 1;  // evaluation takes one at a time
      eval_data_.emplace(request);
    }
    if (!options_.checkpoint.save.empty()) {
      const bool goes_on = loaded_ && options_.checkpoint.save == options_.checkpoint.load;
      directory_.emplace(options_.checkpoint.save, goes_on ? ExistingRun::go_on : ExistingRun::refuse);
      directory_->write("run.json", to_json(with_absolute_paths(options_)).dump(1) + "\n");
      directory_->write("plan.json", plan_json(planned_, model_, options_));
      log_.emplace(directory_->log_path(), loaded_ ? loaded_->step : 0);
    }
    for (const std::string& note : model_.model().config.notes) progress_.message("note: " + note);
    const std::array<Bytes, kTiers> budgets = {planned_.request.budgets.device, 0, planned_.request.budgets.nvme};
    std::array<TierUse, kTiers> tiers;
    for (int t = 0; t < kTiers; ++t) tiers[t] = {plan_.peak[t], plan_.peak[t] > 0 ? budgets[t] : 0};
    progress_.message(plan_summary(planned_, model_));
    progress_.message(data_.summary());
    progress_.set_tiers(tiers);
    loop_.emplace(options_, model_, plan_, data_, [this](std::string_view message) { progress_.message(message); });
    loop_->begin(loaded_);
    if (loaded_) {
      saved_step_ = loaded_->step;
      progress_.message(fmt::format("loaded {} (step {})", loaded_->path, loaded_->step));
    }
  }

  int run() {
    const std::int64_t first = saved_step_, last = options_.batch.train_iters;
    const bool pipelines = loop_->steps_overlap();
    std::int64_t submitted = first;
    for (std::int64_t step = first; step < last; ++step) {  // from 0
      if (submitted == step) loop_->submit(submitted++);
      if (pipelines && submitted < last && !pauses_after(step) && !interrupt_.requested()) loop_->submit(submitted++);
      const StepOutcome outcome = loop_->wait();
      if (!outcome.stopped.empty()) stop(outcome, submitted > step + 1);
      record(outcome);
      // A step that is under way is finished before the run pauses.
      if (submitted > step + 1) continue;
      if (interrupt_.requested()) {
        save(step + 1);
        progress_.message(fmt::format("interrupted after step {}{}", step + 1, directory_ ? ": saved" : "; nothing is saved without --save"));
        return kExitInterrupted;
      }
      if (saves_after(step)) save(step + 1);
    }
    save(last);
    return 0;
  }

 private:
  static PlannedRun planned(const RunOptions& options, const PreparedModel& model) {
    PlannedRun run = plan_run(options, model);
    if (!run.outcome.plan) throw_does_not_fit(run);
    return run;
  }

  bool saves_after(std::int64_t step) const {
    const std::int64_t interval = options_.checkpoint.save_interval;
    return interval > 0 && (step + 1) % interval == 0;
  }
  bool evaluates_after(std::int64_t step) const {
    return eval_data_ && ((step + 1) % options_.log.eval_interval == 0 || step + 1 == options_.batch.train_iters);
  }
  bool pauses_after(std::int64_t step) const { return saves_after(step) || evaluates_after(step); }

  void record(const StepOutcome& outcome) {
    StepRecord record;
    record.step = outcome.step;
    record.loss = outcome.loss;
    record.grad_norm = outcome.grad_norm;
    record.lr = loop_->lr(outcome.step - 1);
    record.tokens = data_.counted_tokens(outcome.step - 1);
    record.step_s = outcome.seconds;
    record.tokens_per_s = static_cast<double>(compiled_.graph.rows * plan_.choices.micro_batches) / outcome.seconds;
    record.device_peak_bytes = outcome.peak[static_cast<int>(Tier::device)];
    record.nvme_read_bytes = outcome.nvme_read_bytes;
    record.nvme_written_bytes = outcome.nvme_written_bytes;
    record.bound_s = planned_.outcome.prediction.bound_s;
    record.binding_lane = name_of(planned_.outcome.prediction.binding_lane);
    record.overlap_efficiency = record.bound_s / record.step_s;
    if (evaluates_after(outcome.step - 1)) record.eval_loss = evaluate();
    if (log_) log_->append(record);
    last_timeline_ = outcome.timeline;
    last_timeline_step_ = outcome.step;
    progress_.step(record);
    if (const auto drift = drift_.observe(record.step_s, last_timeline_)) progress_.message("note: " + *drift);
  }

  double evaluate() { return loss_over(loop_->executor(), *eval_data_, options_.batch.micro_batch_size).mean(); }

  // What the last step did, beside plan.json's prediction: operation i of the plan ran from spans[i][0] to spans[i][1].
  void write_timeline() const {
    nlohmann::ordered_json json = {{"step", last_timeline_step_}, {"spans", nlohmann::ordered_json::array()}};
    for (const Span& span : last_timeline_.spans) json["spans"].push_back({span.begin_s, span.end_s});
    directory_->write("timeline.json", json.dump() + "\n");
  }

  void save(std::int64_t step) {
    if (!directory_ || step == saved_step_) return;
    write_timeline();
    save_checkpoint(*directory_, step, loop_->executor(), plan_, compiled_.graph);
    directory_->prune_checkpoints(options_.checkpoint.keep_last);
    saved_step_ = step;
  }

  // The numbers are gone: nothing of this step was applied, so what there is now is the last good state.
  [[noreturn]] void stop(const StepOutcome& outcome, bool another_under_way) {
    if (another_under_way) loop_->wait();
    const std::int64_t good = outcome.step - 1;
    std::string kept = "Without --save nothing is kept.";
    if (directory_ && outcome.state_intact && !weights_are_finite(loop_->executor(), plan_, compiled_.graph)) {
      kept = fmt::format("The update of step {} had already made weights that are not finite; the last state kept is that of step {} in {}/checkpoints.", good, saved_step_, directory_->path());
    } else if (directory_ && outcome.state_intact) {
      save(good);
      kept = fmt::format("The state after step {} is kept in {}/checkpoints.", good, directory_->path());
    } else if (directory_) {
      kept = fmt::format("Some updates of the step had been made already; the last good state is that of step {} in {}/checkpoints.", saved_step_, directory_->path());
    }
    throw InputError(fmt::format("step {}: {}; training stopped", outcome.step, outcome.stopped), kept + " A lower --lr, a longer --lr-warmup-iters or --clip-grad may help; look at the data of this step, too.");
  }

  const RunOptions& options_;
  PreparedModel model_;
  PlannedRun planned_;
  const Plan& plan_;
  const CompiledModel& compiled_;
  BatchSampler data_;
  std::optional<BatchSampler> eval_data_;
  InterruptHandler interrupt_;
  std::optional<LoadedCheckpoint> loaded_;
  std::optional<RunDirectory> directory_;
  std::optional<LogWriter> log_;
  Progress progress_;
  std::optional<StepLoop> loop_;
  std::int64_t saved_step_ = 0;
  PlanDrift drift_{plan_, compiled_.graph, planned_.outcome.prediction, options_.log.drift_threshold};
  Timeline last_timeline_;
  std::int64_t last_timeline_step_ = 0;
};

}  // namespace

int train(const ResolvedOptions& resolved) {
  require_model(resolved.options);
  require_data(resolved.options);
  refuse_known_machine(resolved.options);
  return TrainingRun(resolved).run();
}

}  // namespace spillway
