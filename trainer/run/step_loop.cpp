#include "trainer/run/step_loop.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "trainer/keep/base_hash.h"
#include "trainer/keep/durable_store.h"
#include "trainer/keep/state_io.h"
#include "trainer/options/adapter_of.h"

namespace spillway {
namespace {

bool rests_on_device(const Plan& plan) {
  if (has_host(plan.choices.chain)) return false;
  return std::ranges::all_of(plan.choices.blocks, [](const BlockPlace& place) {
    return place.weight == Tier::device && place.optimizer == Tier::device;
  });
}

}  // namespace

StepLoop::StepLoop(const RunOptions& options, const PreparedModel& model, const Plan& plan, BatchSampler& data,
                   const LogSink& log, std::optional<DurableSteps> durable, const TeamOfRun& team)
    : options_(options),
      model_(model),
      plan_(plan),
      data_(data),
      schedule_(options.schedule, options.batch.train_iters),
      scale_(options.precision.dtype == DType::float16 ? std::optional(initial_loss_scale(options.precision.loss_scale))
                                                       : std::nullopt),
      durable_(std::move(durable)),
      team_(team.team),
      log_(log) {
  const int here = team_ ? 1 : plan_.choices.sharding.ranks;
  for (int rank = 0; rank < here; ++rank) {
    std::vector<std::uint64_t> orphans = orphans_of(rank, log);
    stores_.push_back(
        std::make_unique<RankStore>(options_, plan_, model_.of(plan_).graph, rank, durable_, std::move(orphans), log));
  }
  if (team_) begin_others(team, log);
  executor_.emplace(executor_options());
}

// What may be removed in a rank's directories, once whoever else has state there has made way; nothing where the rank goes on.
std::vector<std::uint64_t> StepLoop::orphans_of(int rank, const LogSink& log) const {
  const bool uses_nvme = durable_ || plan_.peak[Tier::nvme] > 0;
  if (!uses_nvme || (durable_ && durable_->from_step)) return {};
  return make_way_for_rank(options_, rank, plan_.choices.sharding.ranks, log);
}

// All begin at the same time; then each has said that it has.
void StepLoop::begin_others(const TeamOfRun& team, const LogSink& log) {
  std::optional<NcclUniqueId> nccl;
  if (options_.gpu) nccl = new_nccl_id();
  network_.emplace(model_.device(0), *team_, nccl);
  for (int rank = 1; rank < team_->ranks(); ++rank) {
    const BeginOrder order{.plan = team.plan, .durable = durable_, .orphans = orphans_of(rank, log), .nccl = nccl};
    send_question(team_->control(rank), message_of(order));
  }
  for (int rank = 1; rank < team_->ranks(); ++rank) {
    receive_answer(team_->control(rank));
    remotes_.push_back(std::make_unique<RemoteRank>(team_->control(rank), plan_.choices.micro_batches, model_.of(plan_).graph));
  }
}

void StepLoop::tell_others(TeamQuestion question) {
  Message message;
  message.put(question);
  for (int rank = 1; team_ && rank < team_->ranks(); ++rank) ask(team_->control(rank), message);
}

ExecutorOptions StepLoop::executor_options() const {
  const auto rank_with = [this](int rank) {
    const RankStore& of = *stores_[static_cast<std::size_t>(rank)];
    return RankResources{
        .device = &model_.device(rank), .pool = &model_.pool_of(rank), .store = of.store(), .durability = of.durability()};
  };
  ExecutorOptions options{.plan = &plan_,
                          .model = &model_.of(plan_),
                          .evaluation = &model_.evaluation_of(plan_),
                          .rank = rank_with(0),
                          .sum_by = sum_by(options_.parallel),
                          .say = [this](const std::string& words) { log_(words); },
                          .seed = options_.model.seed};
  for (int rank = 1; rank < std::ssize(stores_); ++rank) options.other_ranks.push_back(rank_with(rank));
  for (const auto& remote : remotes_) options.remote_ranks.push_back(remote.get());
  if (!team_) return options;
  options.transports[static_cast<std::size_t>(TeamChannel::network)] = &network_->transport();
  options.transports[static_cast<std::size_t>(TeamChannel::commits)] = &team_->transport(TeamChannel::commits);
  return options;
}

std::uint64_t StepLoop::write_new_state(const UnitGraph& graph, BlocksToWrite blocks) {
  const ResolvedModel& model = model_.model();
  BlockSource source = weights_of_model(model, graph, options_.model.seed);
  if (blocks == BlocksToWrite::all && adapter_of(options_))
    source = with_adapter(graph, std::move(source),
                          weights_of_adapter(options_.adapter.directory, model.config, graph, options_.model.seed));
  return write_weights(*executor_, graph, plan_.choices.form, WeightParts::master, source, blocks);
}

std::optional<std::uint64_t> StepLoop::begin(const std::optional<LoadedCheckpoint>& checkpoint, const std::string& of_base) {
  const UnitGraph& graph = model_.of(plan_).graph;
  const bool has_frozen = std::ranges::any_of(graph.blocks, &ParameterBlock::frozen);
  const bool goes_on = durable_ && durable_->from_step, is_new = !goes_on && !checkpoint;
  std::optional<std::uint64_t> base;
  if (is_new || has_frozen) {
    const std::uint64_t hash = write_new_state(graph, is_new ? BlocksToWrite::all : BlocksToWrite::frozen);
    if (has_frozen) base = hash;
  }
  if (base && !of_base.empty()) require_same_base(of_base, *base, options_.model.model);
  begin_loss_scale(checkpoint);
  if (goes_on) return base;
  if (checkpoint) load_checkpoint(*checkpoint, *executor_, plan_, graph);
  if (!durable_) return base;
  executor_->hold_state(checkpoint ? checkpoint->step : 0);
  for (const auto& of : stores_) of->store()->keep();
  tell_others(TeamQuestion::keep_store);
  return base;
}

// Goes on with the scale of the loaded state. State of a run in another type has none.
void StepLoop::begin_loss_scale(const std::optional<LoadedCheckpoint>& checkpoint) {
  if (!scale_) return;
  const bool goes_on = durable_ && durable_->from_step;
  if (goes_on) {
    scale_ = loss_scale_of_fp16(durable_->run_directory, *durable_->from_step);
  } else if (checkpoint) {
    const std::string state = checkpoint_state_file(checkpoint->path);
    if (form_of_stored(state, model_.of(plan_).graph) == StateForm::fp16)
      scale_ = loss_scale_of_fp16(checkpoint->path, checkpoint->step);
  }
  if (const std::optional<double>& fixed = options_.precision.loss_scale.fixed) scale_->scale = *fixed;
  // Before the store has state that a kill would leave without it.
  if (durable_ && !goes_on) write_loss_scale(durable_->run_directory, checkpoint ? checkpoint->step : 0, *scale_);
}

void StepLoop::keep_loss_scale(const std::string& directory, std::int64_t step) {
  if (scale_)
    scale_file_.emplace(directory, step, *scale_);
  else
    remove_loss_scale(directory);  // of a run that was in fp16 before
}

std::optional<double> StepLoop::loss_scale() const { return scale_ ? std::optional(last_scale_) : std::nullopt; }

StepOutcome StepLoop::wait() {
  StepOutcome outcome = executor_->wait();
  if (scale_) judge(outcome);
  return outcome;
}

void StepLoop::judge(StepOutcome& outcome) {
  const LossScaleOptions& by = options_.precision.loss_scale;
  const bool overflowed = !outcome.skipped.empty();
  last_scale_ = scale_->scale;
  last_skipped_ = scale_->skipped_steps;
  // No loss is finite for being scaled otherwise: the scale acts behind it.
  const bool is_hopeless = overflowed && by.fixed && !std::isfinite(outcome.loss);
  const std::optional<LossScaleState> next = is_hopeless ? std::nullopt : next_loss_scale(by, *scale_, overflowed);
  if (next) {
    scale_ = next;
    if (scale_file_) scale_file_->note(outcome.step, *scale_);
    return;
  }
  outcome.stopped = fmt::format("{} at the loss scale {}, {}", std::exchange(outcome.skipped, {}), last_scale_,
                                by.fixed ? "which is fixed" : "which cannot be lower");
  executor_->flush();  // applies nothing, but an update that waits is in the way of those who look at the state
}

std::unique_ptr<CheckpointCopy> StepLoop::begin_copy(const RunDirectory& directory, std::int64_t step) {
  if (plan_.choices.sharding.ranks > 1) return nullptr;
  if (durable_ ? speculates(plan_.choices) : !rests_on_device(plan_)) return nullptr;
  executor_->flush();
  StateHold hold = executor_->hold_state(step);
  if (!durable_) {
    return std::make_unique<CheckpointCopy>(directory, step, std::move(hold), CopyPace::updates_wait,
                                            [this](const StateHold& held, const std::string& file, const auto& between) {
                                              return save_held_state(held, plan_, model_.of(plan_).graph, file, between);
                                            });
  }
  return std::make_unique<CheckpointCopy>(directory, step, std::move(hold), CopyPace::nobody_waits,
                                          [this](const StateHold&, const std::string& file, const auto& between) {
                                            return copy_durable_state(*stores_.front()->store(),
                                                                      stores_.front()->durability()->identity, file, between);
                                          });
}

void StepLoop::give_up_store() {
  for (const auto& of : stores_) {
    if (of->store() != nullptr) of->store()->discard();
  }
  tell_others(TeamQuestion::discard_store);
}

// A step whose update may be taken back must end before the next one begins; in fp16 the next one's loss scale follows from it.
bool StepLoop::steps_overlap() const noexcept { return !speculates(plan_.choices) && !scale_; }

void StepLoop::submit(std::int64_t step) {
  const OptimizerOptions& optimizer = options_.optimizer;
  const std::int64_t skipped = scale_ ? scale_->skipped_steps : 0;
  const StepSettings settings{.adamw = {.step = step + 1,
                                        .lr = schedule_.lr(step, skipped),
                                        .beta1 = optimizer.adam_beta1,
                                        .beta2 = optimizer.adam_beta2,
                                        .epsilon = optimizer.adam_eps,
                                        .weight_decay = optimizer.weight_decay,
                                        .skipped = skipped},
                              .clip = optimizer.clip_grad,
                              .counted_tokens = data_.counted_tokens(step),
                              .loss_scale = scale_ ? scale_->scale : 1,
                              .skips = scale_.has_value()};
  executor_->submit(settings,
                    [&](int mb, const MicroBatchRows& rows) { data_.fill(step, mb, rows.tokens, rows.targets, rows.documents); });
}

}  // namespace spillway
