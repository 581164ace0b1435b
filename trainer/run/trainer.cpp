#include "trainer/run/trainer.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>
#include <random>
#include <utility>

#include "files/posix_file.h"
#include "memory/base/error.h"
#include "memory/passes/validate.h"
#include "trainer/data/data.h"
#include "trainer/host/host.h"
#include "trainer/host/interrupt.h"
#include "trainer/keep/base_hash.h"
#include "trainer/keep/checkpoint.h"
#include "trainer/keep/durable_store.h"
#include "trainer/keep/kept_input.h"
#include "trainer/keep/loss_scale_file.h"
#include "trainer/keep/run_directory.h"
#include "trainer/keep/run_files.h"
#include "trainer/keep/starting_point.h"
#include "trainer/keep/state_conversion.h"
#include "trainer/machine/nvme_directories.h"
#include "trainer/options/adapter_of.h"
#include "trainer/options/launched.h"
#include "trainer/options/validate_options.h"
#include "trainer/plan/checkpoint_room.h"
#include "trainer/plan/network_figures.h"
#include "trainer/plan/plan_file.h"
#include "trainer/plan/planned_data.h"
#include "trainer/plan/prepared_run.h"
#include "trainer/run/follower.h"
#include "trainer/run/missing_weights.h"
#include "trainer/run/process_team.h"
#include "trainer/run/run_checkpoints.h"
#include "trainer/run/run_evaluations.h"
#include "trainer/run/step_loop.h"
#include "trainer/run/step_watchers.h"
#include "trainer/run/team_agreement.h"
#include "trainer/show/log.h"
#include "trainer/show/plan_report.h"
#include "trainer/show/progress.h"
#include "trainer/words/quantity.h"

namespace spillway {
namespace {

class TrainingRun {
 public:
  // `team`: where ranks are processes, of which this is rank 0; else null.
  TrainingRun(const ResolvedOptions& resolved, ProcessTeam* team)
      : options_(agreed(resolved.options, team)),
        team_(team),
        stored_(stored_state(options_)),
        data_(data_before_plan(options_)),
        model_(options_),
        planned_(planned(options_, model_)),
        plan_(*planned_.outcome.plan),
        compiled_(model_.of(plan_)),
        progress_(STDOUT_FILENO, progress_style_of(STDOUT_FILENO), options_.batch.train_iters, options_.log.log_interval) {
    if (!data_) data_.emplace(training_data(options_, model_.seq_length(), model_.model().config.vocab));
    validate(plan_, compiled_.graph);
    std::vector<std::string> changes = changes_of_loaded_run();
    start_ = starting_point(remains(), {.goes_on = goes_on(), .train_iters = options_.batch.train_iters});
    evaluations_ = evaluations_of_run(options_, model_.seq_length(), model_.model().config.vocab, *data_);
    add(watchers_of_the_model(options_, model_, evaluations_.get()));
    if (!options_.checkpoint.save.empty() || !options_.checkpoint.load.empty()) data_files_ = data_files_of(options_);
    std::ranges::copy(changes_of_loaded_data(), std::back_inserter(changes));
    require_room_for_checkpoints(planned_, model_, options_, start_.step);
    open_directory();
    // The lanes of one rank say little about a drive that all ranks share.
    if (options_.parallel.ranks == 1) watchers_.push_back(drive_watcher(options_, planned_, model_, say_));
    add(watchers_that_write(options_, directory_ ? std::optional(directory_->log_path()) : std::nullopt, start_.step, say_));
    add(watchers_that_show(options_, planned_, model_, progress_));
    tell_plan(changes);
    begin();
  }

  int run() {
    const std::int64_t last = options_.batch.train_iters;
    const bool pipelines = loop_->steps_overlap();
    std::int64_t submitted = start_.step;
    if (!evaluate_start()) return stop_interrupted(start_.step);
    if (stops_early(start_.step)) return 0;
    for (std::int64_t step = start_.step; step < last; ++step) {  // from 0
      if (submitted == step) loop_->submit(submitted++);
      if (pipelines && submitted < last && !pauses_after(step + 1) && !interrupt_.requested()) loop_->submit(submitted++);
      const StepOutcome outcome = loop_->wait();
      if (checkpoints_) checkpoints_->take_complete_copy();
      if (!outcome.stopped.empty()) stop(outcome, submitted > step + 1);
      watch(outcome);
      // Finish the step that is under way before the run pauses.
      if (submitted > step + 1) continue;
      keep_best(step + 1);
      if (interrupt_.requested()) return stop_interrupted(step + 1);
      if (step + 1 < last && stops_early(step + 1)) return 0;
      if (checkpoints_ && checkpoints_->saves_after(step + 1)) checkpoints_->save_beside(step + 1);
    }
    end(last);
    return 0;
  }

 private:
  // The state that the run begins or goes on with may be the best. Returns false if that was interrupted.
  bool evaluate_start() {
    if (!evaluations_ || !evaluations_->is_due_before_first_step(start_.step)) {
      if (evaluations_) keep_best(start_.step);
      return true;
    }
    loss_before_ = evaluations_->evaluate(start_.step, loop_->executor());
    if (!loss_before_) return false;
    progress_.message(fmt::format("eval loss before step {}: {:.4f}", start_.step + 1, *loss_before_));
    keep_best(start_.step);
    return true;
  }

  void keep_best(std::int64_t step) {
    if (!checkpoints_ || !options_.checkpoint.keep_best || !evaluations_ || !evaluations_->best()) return;
    if (evaluations_->best()->step == step) checkpoints_->save_best(step);
  }

  int stop_interrupted(std::int64_t step) {
    if (checkpoints_) checkpoints_->drop_copy();  // of an earlier step
    end(step);
    progress_.message(
        fmt::format("interrupted after step {}{}", step, directory_ ? ": saved" : "; nothing is saved without --save"));
    return kExitInterrupted;
  }

  // Returns true if the run has ended after `step`, because evaluations find no gain any more.
  bool stops_early(std::int64_t step) {
    if (!evaluations_ || !evaluations_->stops_early()) return false;
    if (checkpoints_) checkpoints_->finish_copy();
    end(step);
    progress_.message(fmt::format("stopped early after step {}: {}", step, evaluations_->words_of_stop()));
    return true;
  }

  static void say_note(std::string_view note) {
    Progress(STDOUT_FILENO, progress_style_of(STDOUT_FILENO), 0, 1).message(fmt::format("note: {}", note));
  }

  // With the budgets that all ranks have room for.
  static RunOptions agreed(RunOptions options, ProcessTeam* team) {
    if (team != nullptr) agree(*team, options, say_note);
    return options;
  }

  static PlannedRun planned(const RunOptions& options, const PreparedModel& model) {
    refuse_other_model(options, model.model().config);
    PlannedRun run = plan_run(options, model, Where::here, say_note);
    if (!run.outcome.plan) throw_does_not_fit(run, options.memory.settled.value_or(SettledBudgets{}).of);
    return run;
  }

  // Comes first, because the run cannot even be planned without its store's directories.
  static std::optional<DurableState> stored_state(const RunOptions& options) {
    return options.checkpoint.load.empty() ? std::nullopt
                                           : durable_state_of(options.checkpoint.load, paths_of(options.memory.nvme));
  }

  bool goes_on() const { return !options_.checkpoint.load.empty() && options_.checkpoint.save == options_.checkpoint.load; }

  // Without --save nothing outlives the process.
  const DurabilityPlan* durability() const {
    return !options_.checkpoint.save.empty() && planned_.durability ? &*planned_.durability : nullptr;
  }

  // Describes each way in which the run goes on otherwise than it began.
  std::vector<std::string> changes_of_loaded_run() const {
    if (options_.checkpoint.load.empty()) return {};
    const std::string settings = options_.checkpoint.load + "/run.json";
    const std::string text = read_text_file(settings, kMiB);
    std::vector<std::string> changes = changes_of_bits(options_from_json_text(text, settings), options_);
    const std::string before = device_identity_in(text), now = device_identity();
    if (!before.empty() && !now.empty() && before != now)
      changes.push_back(
          fmt::format("the run's products were those of {}, and are chosen anew for {}: losses agree to rounding, not "
                      "to the bit",
                      before, now));
    std::ranges::copy(changes_of_model_files(options_), std::back_inserter(changes));
    return changes;
  }
  std::string device_identity() const { return options_.gpu ? model_.device().identity() : std::string(); }
  // For a run that goes on; its data matter only if steps are left.
  std::vector<std::string> changes_of_loaded_data() const {
    const std::string& run = options_.checkpoint.load;
    if (run.empty()) return {};
    if (start_.step < options_.batch.train_iters) return changes_of_data(run, data_files_);
    return {
        fmt::format("--train-iters: {} is at step {} already, its last: nothing is left to train; a larger --train-iters "
                    "goes on",
                    run, start_.step)};
  }

  RunRemains remains() const {
    const std::string& run = options_.checkpoint.load;
    if (run.empty()) return {};
    RunRemains remains{.run = run};
    if (const std::vector<std::int64_t> steps = checkpoint_steps(run); !steps.empty()) remains.checkpoint = steps.back();
    if (!stored_) {
      const std::string log = run + "/log.jsonl";
      remains.has_log = remains.checkpoint || (std::filesystem::exists(log) && !read_log(log).empty());
      return remains;
    }
    remains.stored = StoredStep{.step = stored_->step(),
                                .place = stored_->link.directories.front(),
                                .is_of_this_model = stored_->model() == model_hash(compiled_.graph),
                                .lies_as_planned = lies_as_planned(),
                                .rival = goes_on() ? rival_of(*stored_, run) : std::nullopt};
    return remains;
  }

  // True when each rank's store has its state where the plan has it.
  bool lies_as_planned() const {
    const int ranks = plan_.choices.sharding.ranks;
    if (durability() == nullptr || paths_of(options_.memory.nvme) != stored_->link.directories || stored_->link.ranks != ranks)
      return false;
    for (int rank = 0; rank < ranks; ++rank) {
      const StoredRank& of = stored_->ranks[static_cast<std::size_t>(rank)];
      if (!lies_as(of.record, durable_layout(plan_, compiled_.graph, rank), of.identity)) return false;
    }
    return true;
  }

  void add(StepWatchers watchers) {
    watchers_.insert(watchers_.end(), std::move_iterator(watchers.begin()), std::move_iterator(watchers.end()));
  }

  void open_directory() {
    if (options_.checkpoint.save.empty()) return;
    directory_.emplace(options_.checkpoint.save, goes_on() ? ExistingRun::go_on : ExistingRun::refuse);
    keep_standard_input(directory_->path(), options_.data);
    directory_->write("run.json", run_json_text(options_, device_identity()));
    directory_->write("plan.json", plan_json(planned_, model_, options_));
    if (!goes_on() || options_.model.kept_config.empty()) keep_model_files(directory_->path(), options_, model_.model().config);
    keep_data_files(directory_->path(), data_files_);
  }

  void tell_plan(const std::vector<std::string>& changes) {
    std::vector<std::string> notes = model_.model().config.notes;
    if (const std::string note = note_of_drawn_weights(options_, model_.model()); !note.empty())
      notes.insert(notes.begin(), note);
    if (const std::string note = note_of_other_base(options_); !note.empty()) notes.push_back(note);
    notes.insert(notes.end(), changes.begin(), changes.end());
    if (const std::int64_t ranks = options_.parallel.ranks, threads = threads_of(options_); ranks > threads)
      notes.push_back(fmt::format("{} ranks on {}: they take turns", ranks, counted(threads, "thread")));
    if (directory_ && !directory_->note().empty()) notes.push_back(directory_->note());
    for (const std::string& note : notes) progress_.message("note: " + note);
    progress_.message(plan_summary(planned_, model_));
    progress_.message("durability: " + (directory_ ? durability_summary(options_, planned_.outcome, planned_.durability)
                                                   : "nothing is kept without --save"));
    progress_.message(fmt::format("{}; {}", data_->summary(), data_->words_of_epoch()));
    By<Tier, TierUse> tiers;
    for (const Tier tier : kAll<Tier>) {
      const Bytes peak = plan_.peak[tier];
      tiers[tier] = {peak, peak > 0 ? planned_.request.budgets[tier] : 0};
    }
    progress_.set_tiers(tiers);
  }

  // On return the state is where the plan has it.
  void begin() {
    const std::optional<LoadedCheckpoint> loaded = checkpoint_to_load();
    if (start_.discards_store) {
      remove_store_link(directory_->path());
      discard_store(*stored_);
    }
    if (start_.kind == StartKind::anew && !options_.model.kept_config.empty()) require_weights();
    loop_.emplace(options_, model_, plan_, *data_, say_, durable_steps(),
                  TeamOfRun{.team = team_, .plan = team_ ? plan_json(planned_, model_, options_) : std::string()});
    const std::string of_base = loaded ? loaded->path : start_.kind == StartKind::in_place ? options_.checkpoint.load : "";
    if (const auto base = loop_->begin(loaded, of_base); base && directory_) write_base_hash(directory_->path(), *base);
    if (store_id_ != 0)
      write_store_link(
          directory_->path(),
          {.store_id = store_id_, .directories = paths_of(options_.memory.nvme), .ranks = plan_.choices.sharding.ranks});
    if (directory_) {
      directory_->keep();
      loop_->keep_loss_scale(directory_->path(), start_.step);
      checkpoints_.emplace(options_.checkpoint, *directory_, *loop_, plan_, compiled_.graph, start_.saved_step);
    }
    begin_evaluations();
    if (loaded) progress_.message(fmt::format("loaded {} (step {})", loaded->path, loaded->step));
    if (start_.kind == StartKind::in_place)
      progress_.message(fmt::format("goes on with the state on nvme (step {})", start_.step));
  }

  // In the run's own directory it goes on with the evaluations that it had; another directory is another run.
  void begin_evaluations() {
    if (!evaluations_) return;
    const std::uint64_t data = hash_of_evaluated(data_files_, options_);
    const double threshold = options_.stopping.threshold;
    evaluations_->begin(
        goes_on() ? evaluations_up_to(directory_->path(), start_.step, threshold, data) : Evaluations(threshold, data),
        directory_ ? &*directory_ : nullptr);
    const bool keeps = checkpoints_ && options_.checkpoint.keep_best;
    if (keeps && evaluations_->best() && evaluations_->best()->step != start_.step)
      checkpoints_->go_on_with_best(evaluations_->best()->step);
  }

  // A run that was killed before its first step has its weights in the model's directory alone.
  void require_weights() const {
    (void)resolve_model(options_.model.model, options_.model.init == WeightInit::random ? Weights::drawn : Weights::of_directory);
  }

  std::optional<LoadedCheckpoint> checkpoint_to_load() {
    if (start_.kind == StartKind::at_checkpoint) return checkpoint_of_step(options_.checkpoint.load, start_.step);
    if (start_.kind != StartKind::take_over) return std::nullopt;
    progress_.message(
        fmt::format("the plan has the state elsewhere than the run's store: step {} becomes a checkpoint first", start_.step));
    copy_loss_scale(options_.checkpoint.load, directory_->path(), start_.step);
    write_checkpoint(*directory_, start_.step, [&](const std::string& file) { return save_durable_state(*stored_, file); });
    return checkpoint_of_step(directory_->path(), start_.step);
  }

  // The store for the loop, if steps are durable.
  std::optional<DurableSteps> durable_steps() {
    if (durability() == nullptr) return std::nullopt;
    const bool in_place = start_.kind == StartKind::in_place;
    store_id_ = in_place ? stored_->link.store_id : new_store_id();
    return DurableSteps{.store_id = store_id_,
                        .run_directory = std::filesystem::absolute(directory_->path()).lexically_normal().string(),
                        .yields = options_.memory.durability != Durability::step,
                        .interval = durability()->interval,
                        .from_step = in_place ? std::optional(stored_->step()) : std::nullopt};
  }

  static std::uint64_t new_store_id() {
    std::random_device random;
    return (std::uint64_t{random()} << 32 | random()) | 1;
  }

  // The store is no longer needed once a checkpoint has everything in it.
  void give_up_store() {
    if (store_id_ == 0) return;
    remove_store_link(directory_->path());
    loop_->give_up_store();
  }

  bool pauses_after(std::int64_t step) const {
    return (checkpoints_ && checkpoints_->saves_after(step)) ||
           std::ranges::any_of(watchers_, [step](const auto& watcher) { return watcher->pauses_after(step); });
  }

  void watch(const StepOutcome& outcome) {
    StepRecord record;
    record.step = outcome.step;
    record.loss = outcome.loss;
    record.grad_norm = outcome.grad_norm;
    if (const auto& mixture = outcome.mixture) {
      const RouterLosses& losses = compiled_.graph.router_losses;
      if (losses.any()) record.lm_loss = mixture->lm_loss;
      if (losses.balance > 0) record.aux_loss = mixture->balance_loss;
      if (losses.z > 0) record.router_z_loss = mixture->z_loss;
      record.expert_load_most = mixture->load.most;
      record.expert_load_least = mixture->load.least;
      record.expert_entropy = mixture->load.entropy;
    }
    record.lr = loop_->lr(outcome.step - 1);
    record.loss_scale = loop_->loss_scale();
    if (!outcome.skipped.empty())
      progress_.message(fmt::format("step {}: {} at the loss scale {}: nothing was applied", outcome.step, outcome.skipped,
                                    *record.loss_scale));
    record.tokens = data_->counted_tokens(outcome.step - 1);
    record.step_s = outcome.seconds;
    record.tokens_per_s = static_cast<double>(data_->positions(outcome.step - 1)) / outcome.seconds;
    record.peak_bytes = outcome.peak;
    record.nvme_read_bytes = outcome.moved[Lane::nvme_read];
    record.nvme_written_bytes = outcome.moved[Lane::nvme_write];
    if (plan_.choices.sharding.ranks > 1) record.network_bytes = outcome.moved[Lane::network];
    record.bound_s = bound_.seconds;
    record.binding_lane = name_of(bound_.lane());
    record.overlap_efficiency = record.bound_s / record.step_s;
    last_network_bytes_ = record.network_bytes;
    record.eval_loss_before = std::exchange(loss_before_, std::nullopt);
    if (record.eval_loss_before && evaluations_->best()) record.best = evaluations_->best()->step;
    for (const auto& watcher : watchers_) watcher->watch(record, outcome, loop_->executor());
    if (checkpoints_) checkpoints_->note_step(outcome);
  }

  // Says how many bytes ranks sent in the last step, beside the closed form; the first step, which has nothing to catch up on,
  // and one that was run twice may differ.
  void tell_network() {
    if (!last_network_bytes_) return;
    const Bytes planned = network_figures(plan_, compiled_.graph).all();
    progress_.message(fmt::format(
        "{} ranks sent {} bytes in the last step, {}", plan_.choices.sharding.ranks, with_commas(*last_network_bytes_),
        *last_network_bytes_ == planned ? "as the closed form has it"
                                        : fmt::format("where the closed form has {}", with_commas(planned))));
  }

  // Saves the state after `step`; after that no store is needed.
  void end(std::int64_t step) {
    for (const auto& watcher : watchers_) watcher->finish();
    tell_network();
    if (!checkpoints_) return;
    checkpoints_->finish_copy();
    checkpoints_->save(step);
    give_up_store();
  }

  // Stops at a loss or norm that is not finite; what_is_kept() saves or names the last good state.
  [[noreturn]] void stop(const StepOutcome& outcome, bool another_under_way) {
    if (another_under_way) loop_->wait();
    if (checkpoints_) checkpoints_->finish_copy();
    throw NotFiniteError(
        fmt::format("step {}: {}; training stopped", outcome.step, outcome.stopped),
        what_is_kept(outcome) +
            " A lower --lr, a longer --lr-warmup-iters or --clip-grad may help; look at the data of this step, too.");
  }

  std::string what_is_kept(const StepOutcome& outcome) {
    if (!directory_) return "Without --save nothing is kept.";
    const std::int64_t good = outcome.step - 1;
    const std::string& path = directory_->path();
    if (outcome.state_intact && !weights_are_finite(loop_->executor(), plan_, compiled_.graph)) {
      give_up_store();
      return fmt::format(
          "The update of step {} had already made weights that are not finite; the last state kept is that of step {} in "
          "{}/checkpoints.",
          good, checkpoints_->saved_step(), path);
    }
    if (outcome.state_intact) {
      checkpoints_->save(good);
      give_up_store();
      return fmt::format("The state after step {} is kept in {}/checkpoints.", good, path);
    }
    if (store_id_ != 0) {
      return fmt::format(
          "Some updates of the step had been made already; the store on nvme has the last durable step, from which --load {} "
          "goes on.",
          path);
    }
    return fmt::format(
        "Some updates of the step had been made already; the last good state is that of step {} in {}/checkpoints.",
        checkpoints_->saved_step(), path);
  }

  RunOptions options_;
  ProcessTeam* const team_;
  InterruptHandler interrupt_;                // comes before the machine is measured or a byte is written
  const std::optional<DurableState> stored_;  // contents of the store of the run in --load
  std::optional<BatchSampler> data_;          // filled by the constructor
  PreparedModel model_;
  PlannedRun planned_;
  const Plan& plan_;
  const CompiledModel& compiled_;
  std::vector<DataFile> data_files_;  // filled if there is a run directory to note them in
  StartingPoint start_;
  std::optional<RunDirectory> directory_;
  Progress progress_;
  const LogSink say_ = [this](std::string_view message) { progress_.message(message); };
  std::unique_ptr<RunEvaluations> evaluations_;  // null: the run does not evaluate
  std::optional<double> loss_before_;            // until the next step's record has it
  StepWatchers watchers_;
  std::optional<StepLoop> loop_;
  std::optional<RunCheckpoints> checkpoints_;  // if there is a directory
  const Bound bound_ = planned_.outcome.prediction.bound.of_step();
  std::optional<std::int64_t> last_network_bytes_;  // sent in the last step; nothing with one rank
  std::uint64_t store_id_ = 0;                      // id of the store that outlives the process; 0: none does
};

}  // namespace

int train(const ResolvedOptions& resolved) {
  require_model(resolved.options);
  require_data(resolved.options);
  refuse_known_machine(resolved.options);
  require_threads(threads_of_run(resolved.options));
  check_collectives(resolved.options);
  if (!resolved.options.parallel.launch) return TrainingRun(resolved, nullptr).run();
  if (resolved.options.gpu) nccl_library();  // where there is none, that is said before ranks wait for each other
  ProcessTeam team(resolved.options);
  if (team.rank() > 0) return follow(resolved.options, team);
  return team.lead([&] { return TrainingRun(resolved, &team).run(); });
}

}  // namespace spillway
