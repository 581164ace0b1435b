// A plan that only evaluates, at work: the weights of a checkpoint, a directory or the seed at rest as the plan says, and the
// executor that runs forwards over them. What evaluation and generation share.
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
};

// Of the checkpoint of --load (the newest, or that of `step`), else of the model's directory, else drawn from --seed. The graph
// and the model must outlive the result. InputError where they are of another model.
NamedWeights open_weights(const RunOptions& options, const ResolvedModel& model, const UnitGraph& graph,
                          std::optional<std::int64_t> step);

class ForwardRun {
 public:
  // `programs` but for the store, which is made here; `weights` is read to its end now.
  ForwardRun(const RunOptions& options, ExecutorOptions programs, const BlockSource& weights);

  Executor& executor() noexcept { return *executor_; }

 private:
  std::unique_ptr<Store> store_;
  std::unique_ptr<Executor> executor_;
};

}  // namespace spillway
