#include "trainer/run/step_loop.h"

#include <algorithm>
#include <utility>

#include "trainer/keep/durable_store.h"
#include "trainer/keep/state_io.h"
#include "trainer/machine/nvme_directories.h"

namespace spillway {
namespace {

SumBy sum_by(const ParallelOptions& parallel) {
  if (parallel.collectives == CollectivesChoice::parameter_server) return SumBy::server;
  return parallel.reduce_algorithm == ReduceAlgorithm::ring ? SumBy::ring : SumBy::direct;
}

bool rests_on_device(const Plan& plan) {
  if (has_host(plan.choices.chain)) return false;
  return std::ranges::all_of(plan.choices.blocks, [](const BlockPlace& place) {
    return place.weight == Tier::device && place.optimizer == Tier::device;
  });
}

}  // namespace

StepLoop::StepLoop(const RunOptions& options, const PreparedModel& model, const Plan& plan, BatchSampler& data,
                   const LogSink& log, std::optional<DurableSteps> durable)
    : options_(options),
      model_(model),
      plan_(plan),
      data_(data),
      schedule_(options.schedule, options.batch.train_iters),
      durable_(std::move(durable)) {
  const int ranks = plan_.choices.sharding.ranks;
  for (int rank = 0; rank < ranks && (durable_ || plan_.peak[Tier::nvme] > 0); ++rank) open_store_of(rank, log);
  executor_.emplace(executor_options());
}

void StepLoop::open_store_of(int rank, const LogSink& log) {
  const int ranks = plan_.choices.sharding.ranks;
  const std::vector<NvmeDirectory> directories = directories_of_rank(options_.memory.nvme, rank, ranks);
  RankStore& of = *stores_.emplace_back(std::make_unique<RankStore>());
  if (ranks > 1) of.own_directories = paths_of(directories);
  std::optional<DurableLayout> layout;
  if (durable_) layout = durable_layout(plan_, model_.of(plan_).graph, rank);
  of.store = open_store(directories, layout ? layout->store_bytes : plan_.peak[Tier::nvme], [&](StoreOptions& store) {
    store.log = log;
    if (layout) {
      store.identity = StoreIdentity{.store_id = durable_->store_id,
                                     .rank = rank,
                                     .ranks = ranks,
                                     .records_begin = layout->records_begin,
                                     .place_bytes = layout->place_bytes,
                                     .run_directory = durable_->run_directory,
                                     .yields = durable_->yields};
    }
    if (durable_ && !durable_->from.empty()) {
      store.content = StoreContent::existing;
      return;
    }
    store.orphans = make_way_in(paths_of(directories), log);
    make_directories(of.own_directories);
  });
  if (!durable_) return;
  of.durability = DurabilityOptions{.identity = identify_store(paths_of(directories)),
                                    .layout = *std::move(layout),
                                    .interval = durable_->interval,
                                    .from = {}};
  if (durable_->from.empty()) return;
  of.durability->from = durable_->from[static_cast<std::size_t>(rank)];
  of.store->keep();
}

StepLoop::RankStore::~RankStore() {
  store.reset();
  remove_empty_directories(own_directories);
}

RankResources StepLoop::rank_with(int rank) const {
  RankResources with{.device = &model_.device(rank), .pool = &model_.pool_of(rank)};
  if (stores_.empty()) return with;
  const RankStore& of = *stores_[static_cast<std::size_t>(rank)];
  with.store = of.store.get();
  with.durability = of.durability ? &*of.durability : nullptr;
  return with;
}

ExecutorOptions StepLoop::executor_options() const {
  ExecutorOptions options{.plan = &plan_,
                          .model = &model_.of(plan_),
                          .evaluation = &model_.tiled(),
                          .rank = rank_with(0),
                          .sum_by = sum_by(options_.parallel),
                          .seed = options_.model.seed};
  for (int rank = 1; rank < plan_.choices.sharding.ranks; ++rank) options.other_ranks.push_back(rank_with(rank));
  return options;
}

void StepLoop::begin(const std::optional<LoadedCheckpoint>& checkpoint) {
  const UnitGraph& graph = model_.of(plan_).graph;
  if (durable_ && !durable_->from.empty()) return;
  if (checkpoint) {
    load_checkpoint(*checkpoint, *executor_, plan_, graph);
  } else {
    initialise_state(*executor_, plan_, graph, model_.model(), options_.model.seed);
  }
  if (!durable_) return;
  executor_->hold_state(checkpoint ? checkpoint->step : 0);
  for (const auto& of : stores_) of->store->keep();
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
                                            return copy_durable_state(*stores_.front()->store,
                                                                      stores_.front()->durability->identity, file, between);
                                          });
}

void StepLoop::give_up_store() noexcept {
  for (const auto& of : stores_) of->store->discard();
}

// A step whose update may be taken back must end before the next one begins.
bool StepLoop::steps_overlap() const noexcept { return !speculates(plan_.choices); }

void StepLoop::submit(std::int64_t step) {
  const OptimizerOptions& optimizer = options_.optimizer;
  const StepSettings settings{.adamw = {.step = step + 1,
                                        .lr = schedule_.lr(step),
                                        .beta1 = optimizer.adam_beta1,
                                        .beta2 = optimizer.adam_beta2,
                                        .epsilon = optimizer.adam_eps,
                                        .weight_decay = optimizer.weight_decay},
                              .clip = optimizer.clip_grad,
                              .counted_tokens = data_.counted_tokens(step)};
  executor_->submit(settings, [&](int mb, std::span<std::int32_t> tokens, std::span<std::int32_t> targets) {
    data_.fill(step, mb, tokens, targets);
  });
}

}  // namespace spillway
