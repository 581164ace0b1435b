#include "trainer/run/forward_run.h"

#include <fmt/core.h>

#include "memory/base/error.h"
#include "trainer/keep/checkpoint.h"
#include "trainer/keep/checkpoint_weights.h"
#include "trainer/keep/state_io.h"
#include "trainer/machine/nvme_directories.h"

namespace spillway {

NamedWeights open_weights(const RunOptions& options, const ResolvedModel& model, const UnitGraph& graph,
                          std::optional<std::int64_t> step) {
  const std::string& run = options.checkpoint.load;
  if (step && run.empty()) throw InputError("--step: found without --load, allowed: together with --load DIR");
  if (!run.empty()) {
    const LoadedCheckpoint found = step ? checkpoint_of_step(run, *step) : newest_checkpoint(run);
    const auto checkpoint = std::make_shared<const CheckpointWeights>(found.path, graph, graph.dtype);
    return {fmt::format("{}, step {}", run, found.step),
            [checkpoint](int block, std::int64_t begin, std::span<float> out) { checkpoint->read(block, begin, out); }};
  }
  const std::string drawn = model.directory.empty() ? ", weights drawn from --seed" : "";
  return {options.model.model + drawn, weights_of_model(model, graph, options.model.seed)};
}

ForwardRun::ForwardRun(const RunOptions& options, ExecutorOptions programs, const BlockSource& weights)
    : store_(open_store(options.memory.nvme, programs.plan->peak[Tier::nvme])) {
  programs.rank.store = store_.get();
  programs.seed = options.model.seed;
  executor_ = std::make_unique<Executor>(programs);
  write_weights(*executor_, programs.model->graph, programs.plan->choices.form, WeightParts::forward, weights);
}

}  // namespace spillway
