#include "trainer/run/trainer.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <utility>

#include "memory/error.h"
#include "memory/simulate.h"
#include "models/posix_file.h"
#include "trainer/data/data.h"
#include "trainer/host/interrupt.h"
#include "trainer/keep/checkpoint.h"
#include "trainer/keep/durable_store.h"
#include "trainer/keep/run_directory.h"
#include "trainer/keep/state_conversion.h"
#include "trainer/machine/drive_fit.h"
#include "trainer/machine/drive_watch.h"
#include "trainer/machine/nvme_directories.h"
#include "trainer/machine/profile_file.h"
#include "trainer/options/resolve_options.h"
#include "trainer/options/validate_options.h"
#include "trainer/plan/durability.h"
#include "trainer/plan/plan_file.h"
#include "trainer/plan/prepared_run.h"
#include "trainer/run/evaluation.h"
#include "trainer/run/missing_weights.h"
#include "trainer/run/sampling.h"
#include "trainer/run/step_loop.h"
#include "trainer/show/csv_log.h"
#include "trainer/show/log.h"
#include "trainer/show/plan_drift.h"
#include "trainer/show/plan_report.h"
#include "trainer/show/progress.h"
#include "trainer/show/tensorboard.h"

namespace spillway {
namespace {

class TrainingRun {
 public:
  explicit TrainingRun(const ResolvedOptions& resolved)
      : options_(resolved.options),
        durable_(durable_state(options_)),
        model_(options_),
        planned_(planned(options_, model_)),
        plan_(*planned_.outcome.plan),
        compiled_(model_.of(plan_)),
        data_(training_data(options_, model_.seq_length(), model_.model().config.vocab)),
        progress_(STDOUT_FILENO, progress_style_of(STDOUT_FILENO), options_.batch.train_iters, options_.log.log_interval) {
    validate(plan_, compiled_.graph);
    find_state_to_go_on_with();
    if (!options_.data.eval_data.empty()) {
      DataRequest request = evaluation_data(options_, model_.seq_length(), model_.model().config.vocab);
      request.micro_batches = 1;  // evaluation takes one at a time
      eval_data_.emplace(request);
    }
    if (options_.log.sample_interval > 0) samples_.emplace(options_, model_.seq_length(), model_.model().config.vocab);
    if (!options_.checkpoint.save.empty()) {
      directory_.emplace(options_.checkpoint.save, goes_on() ? ExistingRun::go_on : ExistingRun::refuse);
      directory_->write("run.json", to_json(with_absolute_paths(options_)).dump(1) + "\n");
      directory_->write("plan.json", plan_json(planned_, model_, options_));
      log_.emplace(directory_->log_path(), saved_step_);
    }
    const std::int64_t first_step = loaded_ ? loaded_->step : 0;
    if (!options_.log.csv.empty()) csv_.emplace(options_.log.csv, first_step);
    if (!options_.log.tensorboard.empty()) tensorboard_.emplace(options_.log.tensorboard, first_step);
    if (const std::string note = note_of_drawn_weights(options_, model_.model()); !note.empty())
      progress_.message("note: " + note);
    for (const std::string& note : model_.model().config.notes) progress_.message("note: " + note);
    for (const std::string& change : changes_) progress_.message("note: " + change);
    const std::array<Bytes, kTiers> budgets = {planned_.request.budgets.device, planned_.request.budgets.host,
                                               planned_.request.budgets.nvme};
    std::array<TierUse, kTiers> tiers;
    for (int t = 0; t < kTiers; ++t) tiers[t] = {plan_.peak[t], plan_.peak[t] > 0 ? budgets[t] : 0};
    progress_.message(plan_summary(planned_, model_));
    const std::optional<DurabilityPlan> durability = directory_ ? planned_.durability : std::nullopt;
    progress_.message("durability: " + (directory_ ? durability_summary(options_, planned_.outcome, durability)
                                                   : "nothing is kept without --save"));
    progress_.message(data_.summary());
    progress_.set_tiers(tiers);
    loop_.emplace(
        options_, model_, plan_, data_, [this](std::string_view message) { progress_.message(message); },
        durable_steps(durability));
    loop_->begin(loaded_);
    if (durability) {
      write_store_link(directory_->path(), {.store_id = store_id_, .directories = paths_of(options_.memory.nvme)});
    }
    if (directory_) directory_->keep();
    if (loaded_) progress_.message(fmt::format("loaded {} (step {})", loaded_->path, loaded_->step));
    if (durable_) progress_.message(fmt::format("goes on with the state on nvme (step {})", durable_->record.step));
  }

  int run() {
    const std::int64_t first = first_step_, last = options_.batch.train_iters;
    const bool pipelines = loop_->steps_overlap();
    std::int64_t submitted = first;
    for (std::int64_t step = first; step < last; ++step) {  // from 0
      if (submitted == step) loop_->submit(submitted++);
      if (pipelines && submitted < last && !pauses_after(step) && !interrupt_.requested()) loop_->submit(submitted++);
      const StepOutcome outcome = loop_->wait();
      if (copy_ && copy_->complete()) finish_copy();
      if (!outcome.stopped.empty()) stop(outcome, submitted > step + 1);
      record(outcome);
      // A step that is under way is finished before the run pauses.
      if (submitted > step + 1) continue;
      if (interrupt_.requested()) {
        copy_.reset();  // of a step before
        keep(drive_.finish());
        save(step + 1);
        give_up_store();
        progress_.message(
            fmt::format("interrupted after step {}{}", step + 1, directory_ ? ": saved" : "; nothing is saved without --save"));
        return kExitInterrupted;
      }
      if (saves_after(step)) save_beside(step + 1);
    }
    keep(drive_.finish());
    finish_copy();
    save(last);
    give_up_store();
    return 0;
  }

 private:
  static PlannedRun planned(const RunOptions& options, const PreparedModel& model) {
    PlannedRun run = plan_run(options, model, Where::here, [](std::string_view note) {
      Progress(STDOUT_FILENO, progress_style_of(STDOUT_FILENO), 0, 1).message(fmt::format("note: {}", note));
    });
    if (!run.outcome.plan) throw_does_not_fit(run);
    return run;
  }

  // Looked at first: without its store's directories the run cannot even be planned.
  static std::optional<DurableState> durable_state(const RunOptions& options) {
    return options.checkpoint.load.empty() ? std::nullopt
                                           : durable_state_of(options.checkpoint.load, paths_of(options.memory.nvme));
  }

  bool goes_on() const { return !options_.checkpoint.load.empty() && options_.checkpoint.save == options_.checkpoint.load; }

  // The newest of what the run left: a checkpoint, or the step that its store holds.
  void find_state_to_go_on_with() {
    const std::string& run = options_.checkpoint.load;
    if (run.empty()) return;
    const std::string settings = run + "/run.json";
    changes_ = changes_of_bits(options_from_json_text(read_text_file(settings, kMiB), settings), options_);
    if (durable_) {
      if (durable_->record.model != model_hash(compiled_.graph)) {
        throw InputError(fmt::format("--load {}: the state in {} is of another model", run, durable_->link.directories.front()),
                         "Load it with the model that the run was begun with.");
      }
      if (goes_on()) refuse_copy(run);
    }
    if (!checkpoint_steps(run).empty()) loaded_ = newest_checkpoint(run);
    if (!durable_ && !loaded_) {
      // A run that was killed before its first step is begun anew. It may not even have a log.
      const std::string log = run + "/log.jsonl";
      if (goes_on() && (!std::filesystem::exists(log) || read_log(log).empty())) return;
      loaded_ = newest_checkpoint(run);
    }
    if (durable_ && loaded_ && loaded_->step > durable_->record.step) {
      superseded_ = std::exchange(durable_, std::nullopt);
    } else if (durable_) {
      loaded_.reset();
    }
    first_step_ = saved_step_ = loaded_ ? loaded_->step : durable_->record.step;
    if (first_step_ > options_.batch.train_iters) {
      throw InputError(fmt::format("--train-iters: found {}, allowed: at least {}, the step of {}", options_.batch.train_iters,
                                   first_step_, loaded_ ? loaded_->path : durable_->link.directories.front()));
    }
  }

  void refuse_copy(const std::string& run) const {
    const std::optional<std::string> rival = rival_of(*durable_, run);
    if (!rival) return;
    throw InputError(
        fmt::format("--load {}: its state is in the store of the run in {}, which can go on, too: one is a copy of the other",
                    run, *rival),
        fmt::format("Go on with {}. Or remove {}/store.json, if that one is not to go on; or {}/store.json, to go on from the "
                    "last checkpoint here. Or make a run of its own of the state: --load {} --save DIR, with another --nvme.",
                    *rival, *rival, run, *rival));
  }

  // The store that the loop is to have, where steps are durable. A store that cannot be gone on with
  // in place becomes a checkpoint.
  std::optional<DurableSteps> durable_steps(const std::optional<DurabilityPlan>& durability) {
    if (durable_ && !(durability && goes_on() && paths_of(options_.memory.nvme) == durable_->link.directories &&
                      lies_as(durable_->record, durability->layout, durable_->identity))) {
      save_durable_as_checkpoint();
    }
    if (superseded_ && goes_on()) {
      remove_store_link(directory_->path());
      discard_store(*superseded_);
    }
    if (!durability) return std::nullopt;
    store_id_ = durable_ ? durable_->identity.store_id : new_store_id();
    return DurableSteps{.store_id = store_id_,
                        .run_directory = std::filesystem::absolute(directory_->path()).lexically_normal().string(),
                        .yields = options_.memory.durability != DurabilityChoice::step,
                        .layout = durability->layout,
                        .interval = durability->interval,
                        .from = durable_ ? std::optional(durable_->record) : std::nullopt};
  }

  void save_durable_as_checkpoint() {
    const std::int64_t step = durable_->record.step;
    progress_.message(
        fmt::format("the plan has the state elsewhere than the run's store: step {} becomes a checkpoint first", step));
    write_checkpoint(*directory_, step, [&](const std::string& file) { return save_durable_state(*durable_, file); });
    loaded_ = checkpoint_of_step(directory_->path(), step);
    superseded_ = std::exchange(durable_, std::nullopt);
  }

  // A checkpoint has all that the store has.
  void give_up_store() {
    if (store_id_ == 0 || !directory_) return;
    remove_store_link(directory_->path());
    loop_->give_up_store();
  }

  static std::uint64_t new_store_id() {
    std::random_device random;
    return (std::uint64_t{random()} << 32 | random()) | 1;
  }

  bool saves_after(std::int64_t step) const {
    const std::int64_t interval = options_.checkpoint.save_interval;
    return interval > 0 && (step + 1) % interval == 0;
  }
  bool evaluates_after(std::int64_t step) const {
    return eval_data_ && ((step + 1) % options_.log.eval_interval == 0 || step + 1 == options_.batch.train_iters);
  }
  bool samples_after(std::int64_t step) const { return samples_ && (step + 1) % options_.log.sample_interval == 0; }
  bool pauses_after(std::int64_t step) const { return saves_after(step) || evaluates_after(step) || samples_after(step); }

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
    record.host_peak_bytes = outcome.peak[static_cast<int>(Tier::host)];
    record.nvme_read_bytes = outcome.nvme_read_bytes;
    record.nvme_written_bytes = outcome.nvme_written_bytes;
    record.bound_s = bound_.seconds;
    record.binding_lane = name_of(bound_.lane());
    record.overlap_efficiency = record.bound_s / record.step_s;
    if (evaluates_after(outcome.step - 1)) record.eval_loss = evaluate();
    if (samples_after(outcome.step - 1)) record.sample = samples_->sample(loop_->executor());
    lengths_.add(record.step_s);
    keep(drive_.observe(outcome.timeline, outcome.nvme_read_bytes, outcome.nvme_written_bytes));
    if (log_) log_->append(record);
    append(csv_, record);
    append(tensorboard_, record);
    last_timeline_ = outcome.timeline;
    last_timeline_step_ = outcome.step;
    progress_.step(record);
    if (const auto drift = drift_.observe(record.step_s, last_timeline_)) progress_.message("note: " + *drift);
    if (record.sample) progress_.message("sample: " + *record.sample);
  }

  // What only shows the training is not worth ending it: where its file cannot be written, it goes on without.
  template <typename Log>
  void append(std::optional<Log>& log, const StepRecord& record) {
    if (!log) return;
    try {
      log->append(record);
    } catch (const IoError& error) {
      log.reset();
      progress_.message(fmt::format("note: {}: no more steps are written there; the run goes on", error.what()));
    }
  }

  // What plans of later runs go by. Where no profile of this drive is kept, nobody would look for it.
  void keep(const std::optional<SeenDrive>& seen) const {
    if (!seen) return;
    const auto cache = profile_cache(model_.pool().threads(), options_.memory.nvme);
    if (!cache) return;
    keep_seen(*cache, fitted(*seen, planned_.measured, lengths_.median(), [this](const MachineProfile& machine) {
                return simulate(plan_, compiled_.graph, machine).step_s;
              }));
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

  // Training goes on meanwhile, where it can.
  void save_beside(std::int64_t step) {
    finish_copy();
    if (!directory_ || step == saved_step_) return;
    copy_ = loop_->begin_copy(*directory_, step);
    if (!copy_) return save(step);
    write_timeline();
  }

  void finish_copy() {
    if (!copy_) return;
    const std::unique_ptr<CheckpointCopy> copy = std::move(copy_);
    copy->finish();
    directory_->prune_checkpoints(options_.checkpoint.keep_last);
    saved_step_ = copy->step();
  }

  // The numbers are gone: nothing of this step was applied, so what there is now is the last good state.
  [[noreturn]] void stop(const StepOutcome& outcome, bool another_under_way) {
    if (another_under_way) loop_->wait();
    finish_copy();
    const std::int64_t good = outcome.step - 1;
    std::string kept = "Without --save nothing is kept.";
    if (directory_ && outcome.state_intact && !weights_are_finite(loop_->executor(), plan_, compiled_.graph)) {
      kept = fmt::format(
          "The update of step {} had already made weights that are not finite; the last state kept is that of step {} in "
          "{}/checkpoints.",
          good, saved_step_, directory_->path());
      give_up_store();
    } else if (directory_ && outcome.state_intact) {
      save(good);
      give_up_store();
      kept = fmt::format("The state after step {} is kept in {}/checkpoints.", good, directory_->path());
    } else if (store_id_ != 0) {
      kept = fmt::format(
          "Some updates of the step had been made already; the store on nvme has the last durable step, from which --load {} "
          "goes on.",
          directory_->path());
    } else if (directory_) {
      kept =
          fmt::format("Some updates of the step had been made already; the last good state is that of step {} in {}/checkpoints.",
                      saved_step_, directory_->path());
    }
    throw NotFiniteError(
        fmt::format("step {}: {}; training stopped", outcome.step, outcome.stopped),
        kept + " A lower --lr, a longer --lr-warmup-iters or --clip-grad may help; look at the data of this step, too.");
  }

  const RunOptions& options_;
  std::optional<DurableState> durable_;  // what the run goes on with, in place
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
  std::optional<CsvLog> csv_;
  std::optional<TensorboardLog> tensorboard_;
  std::optional<TrainingSamples> samples_;
  Progress progress_;
  std::optional<StepLoop> loop_;
  std::unique_ptr<CheckpointCopy> copy_;  // under way
  const Bound bound_ = planned_.outcome.prediction.bound.of_step();
  DriveWatch drive_{plan_, planned_.machine};
  StepLengths lengths_;
  PlanDrift drift_{plan_, compiled_.graph, planned_.outcome.prediction, options_.log.drift_threshold};
  std::optional<DurableState> superseded_;  // a store of which a checkpoint has all
  std::uint64_t store_id_ = 0;              // of the store that outlives the process; 0: none does
  std::vector<std::string> changes_;        // where it goes on otherwise than it began
  std::int64_t first_step_ = 0;             // the step to go on from
  std::int64_t saved_step_ = 0;             // of which the run directory, or what was loaded, has a checkpoint
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
