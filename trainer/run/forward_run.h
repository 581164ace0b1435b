// Runs a plan that only evaluates: puts the weights of a checkpoint, a directory or the seed in their places and holds the
// executor that runs forwards over them. Shared by evaluation and generation.
// Not here: such plans (trainer/plan/evaluation_plan.h), training (step_loop.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "models/catalogue/catalogue.h"
#include "models/weights_io.h"
#include "nvme/store.h"
#include "offload/executor.h"
#include "trainer/options/options.h"

namespace spillway {

struct NamedWeights {
  std::string name;  // "/models/x", or "runs/first, step 100"
  BlockSource read;
  std::string of_base;  // where the checksum of frozen weights is noted; empty: nowhere
};

// Opens the weights of a checkpoint of --load (of `step`, or the newest), else of the model's directory, else drawn from --seed;
// and those of its adapter, where the graph has one: of the checkpoint, or of --adapter.
// The graph and the model must outlive the result. Throws InputError if the weights belong to another model.
NamedWeights open_weights(const RunOptions& options, const ResolvedModel& model, const UnitGraph& graph,
                          std::optional<std::int64_t> step);

class ForwardRun {
 public:
  // `programs` lacks only the store, which is made here; reads `weights` to the end now.
  ForwardRun(const RunOptions& options, ExecutorOptions programs, const NamedWeights& weights);

  Executor& executor() noexcept { return *executor_; }

 private:
  std::unique_ptr<Store> store_;
  std::unique_ptr<Executor> executor_;
};

}  // namespace spillway
