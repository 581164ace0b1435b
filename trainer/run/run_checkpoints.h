// Writes the checkpoints of a run, while training waits or while it goes on.
// Not here: the contents of a checkpoint (trainer/keep/checkpoint.h), durable steps (step_loop.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "memory/plan/plan.h"
#include "memory/plan/timeline.h"
#include "trainer/keep/checkpoint_copy.h"
#include "trainer/keep/run_directory.h"
#include "trainer/options/options.h"
#include "trainer/run/step_loop.h"

namespace spillway {

class RunCheckpoints {
 public:
  // All arguments must outlive it. `saved_step`: step of the newest existing checkpoint; 0: none.
  RunCheckpoints(const CheckpointOptions& options, const RunDirectory& directory, StepLoop& loop, const Plan& plan,
                 const UnitGraph& graph, std::int64_t saved_step);

  std::int64_t saved_step() const noexcept { return saved_step_; }
  bool saves_after(std::int64_t step) const noexcept { return options_.save_interval > 0 && step % options_.save_interval == 0; }

  // Notes a finished step: its timeline is written beside plan.json with the next checkpoint.
  void note_step(const StepOutcome& outcome);
  // Saves the state after `step`, if it is not saved yet. No step may be under way.
  void save(std::int64_t step);
  // The same while training goes on, if possible.
  void save_beside(std::int64_t step);
  // Saves the state after `step`, the best so far, unless its checkpoint exists; the best one before it is kept no longer, unless
  // other flags keep it. No step may be under way.
  void save_best(std::int64_t step);
  // Keeps the checkpoint of a former run's best step, if it exists.
  void go_on_with_best(std::optional<std::int64_t> step) { best_step_ = step; }
  // For a copy that is under way: take it if it is complete, wait for it, or give it up.
  void take_complete_copy();
  void finish_copy();
  void drop_copy() noexcept { copy_.reset(); }

 private:
  void write_timeline() const;
  void prune() const;

  const CheckpointOptions& options_;
  const RunDirectory& directory_;
  StepLoop& loop_;
  const Plan& plan_;
  const UnitGraph& graph_;
  std::int64_t saved_step_;
  std::optional<std::int64_t> best_step_;  // with --keep-best
  Timeline timeline_;
  std::int64_t timeline_step_ = 0;        // 0: no step has run
  std::unique_ptr<CheckpointCopy> copy_;  // the copy under way; null: none
};

}  // namespace spillway
