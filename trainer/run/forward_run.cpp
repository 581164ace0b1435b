#include "trainer/run/forward_run.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "memory/base/error.h"
#include "trainer/keep/base_hash.h"
#include "trainer/keep/checkpoint.h"
#include "trainer/keep/checkpoint_weights.h"
#include "trainer/keep/state_io.h"
#include "trainer/machine/nvme_directories.h"

namespace spillway {

namespace {

bool has_adapter(const UnitGraph& graph) { return std::ranges::any_of(graph.blocks, &ParameterBlock::of_adapter); }

}  // namespace

NamedWeights open_weights(const RunOptions& options, const ResolvedModel& model, const UnitGraph& graph,
                          std::optional<std::int64_t> step) {
  const std::string& run = options.checkpoint.load;
  if (step && run.empty()) throw InputError("--step: found without --load, allowed: together with --load DIR");
  if (!run.empty()) {
    const LoadedCheckpoint found = step ? checkpoint_of_step(run, *step) : newest_checkpoint(run);
    const auto checkpoint = std::make_shared<const CheckpointWeights>(found.path, graph, graph.dtype);
    NamedWeights weights{
        .name = fmt::format("{}, step {}", run, found.step),
        .read = [checkpoint](int block, std::int64_t begin, std::span<float> out) { checkpoint->read(block, begin, out); },
        .of_base = found.path};
    if (has_adapter(graph))
      weights.read = with_adapter(graph, weights_of_model(model, graph, options.model.seed), std::move(weights.read));
    return weights;
  }
  const std::string drawn = model.directory.empty() ? ", weights drawn from --seed" : "";
  NamedWeights weights{
      .name = options.model.model + drawn, .read = weights_of_model(model, graph, options.model.seed), .of_base = {}};
  if (has_adapter(graph)) {
    const std::string& directory = options.adapter.directory;
    if (!directory.empty()) weights.name += " with " + directory;
    weights.read =
        with_adapter(graph, std::move(weights.read), weights_of_adapter(directory, model.config, graph, options.model.seed));
  }
  return weights;
}

ForwardRun::ForwardRun(const RunOptions& options, ExecutorOptions programs, const NamedWeights& weights)
    : store_(open_store(options.memory.nvme, programs.plan->peak[Tier::nvme])) {
  programs.rank.store = store_.get();
  programs.seed = options.model.seed;
  executor_ = std::make_unique<Executor>(programs);
  const UnitGraph& graph = programs.model->graph;
  const std::uint64_t base = write_weights(*executor_, graph, programs.plan->choices.form, WeightParts::forward, weights.read);
  if (has_adapter(graph) && !weights.of_base.empty()) require_same_base(weights.of_base, base, options.model.model);
}

}  // namespace spillway
