// The model of a run, compiled: what the planner weighs and the executor runs.
// Not here: planning (planned_run.h), the model's shape (models/catalogue/catalogue.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "memory/parallel.h"
#include "memory/search/planner.h"
#include "models/catalogue/catalogue.h"
#include "models/unit_code.h"
#include "models/unit_draft.h"
#include "offload/device.h"
#include "trainer/options/options.h"

namespace spillway {

// Whether the run is to happen on this machine, or is only planned: then for a machine that may be another one.
enum class Where : std::uint8_t { here, anywhere };

// The model compiled for each way through the vocabulary, and the threads that it computes with.
class PreparedModel {
 public:
  // InputError for models that this version can only plan, where the run is to happen. The options must outlive this.
  explicit PreparedModel(const RunOptions& options, Where where = Where::here);
  PreparedModel(const PreparedModel&) = delete;
  PreparedModel& operator=(const PreparedModel&) = delete;

  const ResolvedModel& model() const noexcept { return model_; }
  std::int64_t seq_length() const noexcept { return seq_length_; }
  const ThreadPool& pool() const noexcept { return pool_; }
  // Of runs; opened when it is first asked for.
  Device& device() const;
  const CompiledModel& tiled() const noexcept { return tiled_; }
  const CompiledModel& of(const Plan& plan) const noexcept { return plan.choices.graph == 0 ? tiled_ : fused_; }
  GraphCandidates graphs() const noexcept;

 private:
  const RunOptions& options_;
  ResolvedModel model_;
  std::int64_t seq_length_;
  ThreadPool pool_;
  mutable std::unique_ptr<Device> device_;
  ScratchBound scratch_;
  CompiledModel tiled_, fused_;
  std::optional<CompiledModel> thin_tiled_, thin_fused_;  // with fewer layers, for the planner; not where there are few
};

// InputError where the options name a machine that need not be this one: of those who run and not only plan.
void refuse_known_machine(const RunOptions& options);

}  // namespace spillway
