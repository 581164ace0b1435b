// From options to a plan: the model, the machine, the budgets and the search, as plan, train and verify share them.
// Not here: running the plan (trainer/run/trainer.h), showing it (trainer/show/plan_report.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "memory/parallel.h"
#include "memory/planner.h"
#include "models/catalogue/catalogue.h"
#include "models/cpu/cpu_scratch.h"
#include "models/unit_code.h"
#include "nvme/io_queue.h"
#include "trainer/machine/drive_rates.h"
#include "trainer/options/options.h"
#include "trainer/plan/durability.h"

namespace spillway {

// Whether the run is to happen on this machine, or is only planned: then for a machine that may be another one.
enum class Where : std::uint8_t { here, anywhere };

// The model compiled for each way through the vocabulary, and the threads that it computes with.
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
  CpuTraits machine_;
  CompiledModel tiled_, fused_;
  std::optional<CompiledModel> thin_tiled_, thin_fused_;  // with fewer layers, for the planner; not where there are few
};

// Budgets from flags, or from what the machine has to give. Directories are looked at, nothing is created; not where the run is
// only planned and every directory is given with its size.
Budgets budgets_for(const RunOptions& options, Where where = Where::here);

// Of a known machine that is not this one: its own device memory, and the sizes of --nvme, whose directories need not be there.
Budgets budgets_of(const MachineProfile& machine, const RunOptions& options);

// What one rank has: of a known machine by its profile, else of this one. Ranks of a host share its memory and its directories.
Budgets budgets_of_run(const RunOptions& options, const MachineProfile& machine, Where where);

// InputError where the options name a machine that need not be this one: of those who run and not only plan.
void refuse_known_machine(const RunOptions& options);

PlanRequest plan_request(const RunOptions& options, const Budgets& budgets);

// As typed, and quoted for a shell where that must be: "--device-memory 512MiB".
using FlagList = std::vector<std::string>;

struct WouldFit {
  std::vector<FlagList> lists;  // each was planned and fits
  Where where = Where::here;    // anywhere: only on a machine with more memory or disk than the one planned for
};

// Flags with which the same run would be faster, and by how much.
struct Lift {
  std::vector<std::string> flags;
  std::string costs;  // what they change beside the time
  double step_s = 0, bound_s = 0;
};

struct PlannedRun {
  MeasuredProfile measured;  // the machine as it was probed, and what runs have seen of its drive
  MachineProfile machine;    // that is planned for: what one rank has of it, its drive as_seen()
  PlanRequest request;
  PlanOutcome outcome;
  std::optional<DurabilityPlan> durability;  // of a run that is given --save
  WouldFit would_fit;                        // where the plan does not
  std::vector<Lift> lifts;                   // of `spillway plan` (plan_lifts.h)
};

// Plans, or takes --plan FILE, for which nothing is measured: what it predicts then comes from the profile that is kept, or else
// from the one that the plan was made with. InputError where a forced combination cannot be exact. `say` is told what takes long.
PlannedRun plan_run(const RunOptions& options, const PreparedModel& model, Where where = Where::here, const LogSink& say = {});

// The same for a machine whose profile is at hand; where nothing fits, what would is not looked for.
PlannedRun plan_run_on(const MeasuredProfile& measured, const RunOptions& options, const PreparedModel& model, Where where);

// The error of a run that does not fit: the tier, what lacks, what would fit.
[[noreturn]] void throw_does_not_fit(const PlannedRun& run);

}  // namespace spillway
