// The checkpoints of a run while it goes: written while training waits, or beside it.
// Not here: what is in one (trainer/keep/checkpoint.h), durable steps (step_loop.h).
#pragma once

#include <cstdint>
#include <memory>

#include "memory/plan.h"
#include "memory/timeline.h"
#include "trainer/keep/checkpoint_copy.h"
#include "trainer/keep/run_directory.h"
#include "trainer/options/options.h"
#include "trainer/run/step_loop.h"

namespace spillway {

class RunCheckpoints {
 public:
  // Everything given must outlive it. `saved_step`: of the newest checkpoint that there is; 0: none.
  RunCheckpoints(const CheckpointOptions& options, const RunDirectory& directory, StepLoop& loop, const Plan& plan,
                 const UnitGraph& graph, std::int64_t saved_step);

  std::int64_t saved_step() const noexcept { return saved_step_; }
  bool saves_after(std::int64_t step) const noexcept { return options_.save_interval > 0 && step % options_.save_interval == 0; }

  // A step that is over: its timeline goes beside plan.json with the next checkpoint.
  void note_step(const StepOutcome& outcome);
  // Of the state after `step`, where there is none yet. No step may be under way.
  void save(std::int64_t step);
  // The same while training goes on, where it can.
  void save_beside(std::int64_t step);
  // A copy that is under way: taken if it is complete, waited for, or given up.
  void take_complete_copy();
  void finish_copy();
  void drop_copy() noexcept { copy_.reset(); }

 private:
  void write_timeline() const;

  const CheckpointOptions& options_;
  const RunDirectory& directory_;
  StepLoop& loop_;
  const Plan& plan_;
  const UnitGraph& graph_;
  std::int64_t saved_step_;
  Timeline timeline_;
  std::int64_t timeline_step_ = 0;        // 0: no step has run
  std::unique_ptr<CheckpointCopy> copy_;  // under way
};

}  // namespace spillway
