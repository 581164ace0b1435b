#include "trainer/step_loop.h"

#include <utility>

#include "trainer/state_io.h"

namespace spillway {
namespace {

std::unique_ptr<Store> open_store(const RunOptions& options, const Plan& plan, const LogSink& log) {
  const Bytes bytes = plan.peak[static_cast<int>(Tier::nvme)];
  if (bytes == 0) return nullptr;
  StoreOptions store;
  for (const NvmeDirectory& directory : options.memory.nvme) store.directories.push_back({directory.path, directory.size.value_or(0)});
  store.bytes = bytes;
  store.log = log;
  return std::make_unique<Store>(std::move(store));
}

}  // namespace

StepLoop::StepLoop(const RunOptions& options, const PreparedModel& model, const Plan& plan, BatchSampler& data, const LogSink& log)
    : options_(options), model_(model), plan_(plan), data_(data), schedule_(options.schedule, options.batch.train_iters), store_(open_store(options, plan, log)) {
  executor_.emplace(ExecutorOptions{.plan = &plan_, .model = &model_.of(plan_), .evaluation = &model_.tiled(), .pool = &model_.pool(), .store = store_.get(), .seed = options_.model.seed});
}

void StepLoop::begin(const std::optional<LoadedCheckpoint>& checkpoint) {
  const UnitGraph& graph = model_.of(plan_).graph;
  if (checkpoint) {
    load_checkpoint(*checkpoint, *executor_, plan_, graph);
  } else {
    initialise_state(*executor_, plan_, graph, model_.model(), options_.model.seed);
  }
}

// A step whose update may be taken back must be over before the next begins.
bool StepLoop::steps_overlap() const noexcept { return !(plan_.choices.update == UpdateTime::in_backward && plan_.choices.clip); }

void StepLoop::submit(std::int64_t step) {
  const OptimizerOptions& optimizer = options_.optimizer;
  const StepSettings settings{.step = step + 1, .lr = schedule_.lr(step), .beta1 = optimizer.adam_beta1, .beta2 = optimizer.adam_beta2,
                              .epsilon = optimizer.adam_eps, .weight_decay = optimizer.weight_decay, .clip = optimizer.clip_grad,
                              .counted_tokens = data_.counted_tokens(step)};
  executor_->submit(settings, [&](int mb, std::span<std::int32_t> tokens, std::span<std::int32_t> targets) { data_.fill(step, mb, tokens, targets); });
}

}  // namespace spillway
