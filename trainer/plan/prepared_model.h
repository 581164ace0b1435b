// The model of a run, compiled: the planner weighs it and the executor runs it.
// Not here: planning (planned_run.h), the model's shape (models/catalogue/catalogue.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "memory/base/parallel.h"
#include "memory/search/planner.h"
#include "models/build.h"
#include "models/catalogue/catalogue.h"
#include "models/unit_code.h"
#include "models/unit_draft.h"
#include "offload/device.h"
#include "trainer/options/options.h"

namespace spillway {

// here: the run happens on this machine. anywhere: it is only planned, perhaps for another machine.
enum class Where : std::uint8_t { here, anywhere };

// The model compiled with each of the two vocabulary heads, a mixture also with its experts in groups, and what ranks compute
// with.
class PreparedModel {
 public:
  // The options must outlive this.
  explicit PreparedModel(const RunOptions& options, Where where = Where::here);
  PreparedModel(const PreparedModel&) = delete;
  PreparedModel& operator=(const PreparedModel&) = delete;

  const ResolvedModel& model() const noexcept { return model_; }
  std::int64_t seq_length() const noexcept { return seq_length_; }
  const ThreadPool& pool() const noexcept { return pool_; }  // of all threads of the run
  // Of one rank: its share of the threads, and its device. For runs only; made at the first call.
  const ThreadPool& pool_of(int rank) const { return *rank_with(rank).pool; }
  Device& device(int rank = 0) const { return *rank_with(rank).device; }
  const CompiledModel& tiled() const noexcept { return whole_.tiled; }
  const CompiledModel& of(const Plan& plan) const noexcept {
    return plan.choices.graph == 0 ? form_of(plan).tiled : form_of(plan).fused;
  }
  // In the form with the smallest units: for runs without a backward, which lose nothing by it.
  const CompiledModel& in_small_units() const noexcept { return in_groups_ ? in_groups_->tiled : whole_.tiled; }
  // What a plan's evaluations run.
  const CompiledModel& evaluation_of(const Plan& plan) const noexcept { return form_of(plan).tiled; }
  GraphCandidates graphs() const noexcept { return graphs_; }

 private:
  const RunOptions& options_;
  ResolvedModel model_;
  std::int64_t seq_length_;
  ThreadPool pool_;
  struct OfRank {
    std::unique_ptr<ThreadPool> own;  // null for an only rank, which has all threads
    const ThreadPool* pool = nullptr;
    std::unique_ptr<Device> device;
  };
  const OfRank& rank_with(int rank) const;

  mutable std::vector<OfRank> ranks_;
  ScratchBound scratch_;
  struct Form {
    CompiledModel tiled, fused;
    std::optional<CompiledModel> thin_tiled, thin_fused;  // with fewer layers, for the planner; none if the model has few
    GraphCandidates graphs() const;
  };
  Form compiled(ExpertsForm experts) const;
  const Form& form_of(const Plan& plan) const noexcept { return plan.choices.experts_in_groups ? *in_groups_ : whole_; }

  Form whole_;
  std::optional<Form> in_groups_;  // of a mixture whose layers have several groups of experts
  GraphCandidates graphs_, graphs_in_groups_;
};

// Throws InputError if the options name a machine that need not be this one; for commands that run, not only plan.
void refuse_known_machine(const RunOptions& options);

}  // namespace spillway
