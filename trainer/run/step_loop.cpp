#include "trainer/run/step_loop.h"

#include <algorithm>
#include <utility>

#include "trainer/keep/durable_store.h"
#include "trainer/keep/state_io.h"
#include "trainer/machine/nvme_directories.h"

namespace spillway {
namespace {

StoreIdentity identity_of(const DurableSteps& durable) {
  return {.store_id = durable.store_id,
          .records_begin = durable.layout.records_begin,
          .place_bytes = durable.layout.place_bytes,
          .run_directory = durable.run_directory,
          .yields = durable.yields};
}

std::unique_ptr<Store> store_of_run(const RunOptions& options, const Plan& plan, const LogSink& log,
                                    const std::optional<DurableSteps>& durable) {
  const Bytes bytes = durable ? durable->layout.store_bytes : plan.peak[Tier::nvme];
  return open_store(options.memory.nvme, bytes, [&](StoreOptions& store) {
    store.log = log;
    if (durable) store.identity = identity_of(*durable);
    if (durable && durable->from)
      store.content = StoreContent::existing;
    else
      store.orphans = make_way_in(paths_of(options.memory.nvme), log);
  });
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
      durable_(std::move(durable)),
      store_(store_of_run(options, plan, log, durable_)) {
  if (durable_) {
    const StoreIdentity identity = identify_store(paths_of(options_.memory.nvme));
    durability_ = DurabilityOptions{
        .identity = identity, .layout = durable_->layout, .interval = durable_->interval, .from = durable_->from};
    if (durable_->from) store_->keep();
  }
  executor_.emplace(ExecutorOptions{.plan = &plan_,
                                    .model = &model_.of(plan_),
                                    .evaluation = &model_.tiled(),
                                    .device = &model_.device(),
                                    .pool = &model_.pool(),
                                    .store = store_.get(),
                                    .seed = options_.model.seed,
                                    .durability = durability_ ? &*durability_ : nullptr});
}

void StepLoop::begin(const std::optional<LoadedCheckpoint>& checkpoint) {
  const UnitGraph& graph = model_.of(plan_).graph;
  if (durable_ && durable_->from) return;
  if (checkpoint) {
    load_checkpoint(*checkpoint, *executor_, plan_, graph);
  } else {
    initialise_state(*executor_, plan_, graph, model_.model(), options_.model.seed);
  }
  if (!durable_) return;
  executor_->hold_state(checkpoint ? checkpoint->step : 0);
  store_->keep();
}

std::unique_ptr<CheckpointCopy> StepLoop::begin_copy(const RunDirectory& directory, std::int64_t step) {
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
                                            return copy_durable_state(*store_, durability_->identity, file, between);
                                          });
}

void StepLoop::give_up_store() noexcept {
  if (store_) store_->discard();
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
