// From options to a plan: the model, the machine, the budgets and the search, as plan, train and verify share them.
// Not here: running the plan (trainer.h), showing it (plan_report.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "memory/parallel.h"
#include "memory/planner.h"
#include "models/catalogue/catalogue.h"
#include "models/ops.h"
#include "models/unit_ops.h"
#include "trainer/durability.h"
#include "trainer/options.h"

namespace spillway {

// Whether the run is to happen on this machine, or is only planned: then for a machine that may be another one.
enum class Where : std::uint8_t { here, anywhere };

// The model compiled for each way through the vocabulary, and what it computes with. Does not move: units refer to the pool.
class PreparedModel {
 public:
  // InputError for models that this version can only plan, where the run is to happen.
  explicit PreparedModel(const RunOptions& options, Where where = Where::here);
  PreparedModel(const PreparedModel&) = delete;
  PreparedModel& operator=(const PreparedModel&) = delete;

  const ResolvedModel& model() const noexcept { return model_; }
  std::int64_t seq_length() const noexcept { return seq_length_; }
  const ThreadPool& pool() const noexcept { return pool_; }
  const CompiledModel& tiled() const noexcept { return tiled_; }
  const CompiledModel& of(const Plan& plan) const noexcept { return plan.choices.graph == 0 ? tiled_ : fused_; }
  GraphCandidates graphs() const noexcept;

 private:
  ResolvedModel model_;
  std::int64_t seq_length_;
  ThreadPool pool_;
  ops::MatmulEngine engine_;
  CompiledModel tiled_, fused_;
  std::optional<CompiledModel> thin_tiled_, thin_fused_;  // with fewer layers, for the planner; not where there are few
};

// Budgets from flags, or from what the machine has to give. Directories are looked at, nothing is created; not where the run is
// only planned and every directory is given with its size.
Budgets budgets_for(const RunOptions& options, Where where = Where::here);

// Of a known machine that is not this one: its own device memory, and the sizes of --nvme, whose directories need not be there.
Budgets budgets_of(const MachineProfile& machine, const RunOptions& options);

// InputError where the options name a machine that need not be this one: of those who run and not only plan.
void refuse_known_machine(const RunOptions& options);

PlanRequest plan_request(const RunOptions& options, const Budgets& budgets);

// Flags with which the same run would be faster, and by how much.
struct Lift {
  std::vector<std::string> flags;
  std::string costs;  // what they change beside the time
  double step_s = 0, bound_s = 0;
};

struct PlannedRun {
  MachineProfile machine;
  PlanRequest request;
  PlanOutcome outcome;
  std::optional<DurabilityPlan> durability;  // of a run that is given --save
  // Where nothing fits: flags that do, each of which was planned.
  std::vector<std::string> would_fit;
  std::vector<Lift> lifts;  // of `spillway plan` (plan_lifts.h)
};

// Plans, or takes --plan FILE. InputError where a forced combination cannot be exact.
PlannedRun plan_run(const RunOptions& options, const PreparedModel& model, Where where = Where::here);

// The error of a run that does not fit: the tier, what lacks, what would fit.
[[noreturn]] void throw_does_not_fit(const PlannedRun& run);

}  // namespace spillway
