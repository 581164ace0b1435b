// Runs one plan: its store, its executor with the state, and its steps. Shared by train and verify.
// Not here: the use of a step's outcome (trainer.h, verify.h), planning (trainer/plan/prepared_model.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "nvme/store.h"
#include "offload/executor.h"
#include "offload/remote_rank.h"
#include "trainer/data/data.h"
#include "trainer/keep/checkpoint.h"
#include "trainer/keep/checkpoint_copy.h"
#include "trainer/keep/loss_scale_file.h"
#include "trainer/keep/state_io.h"
#include "trainer/options/lr_schedule.h"
#include "trainer/plan/prepared_model.h"
#include "trainer/run/process_team.h"
#include "trainer/run/rank_store.h"
#include "trainer/run/team_messages.h"
#include "trainer/run/team_network.h"

namespace spillway {

// Where ranks are processes: the others, and the plan.json that they run.
struct TeamOfRun {
  ProcessTeam* team = nullptr;  // null: all ranks are threads of this process
  std::string plan = {};
};

class StepLoop {
 public:
  // Keeps references to all arguments, which must outlive the loop. Reserves all memory of the plan.
  StepLoop(const RunOptions& options, const PreparedModel& model, const Plan& plan, BatchSampler& data, const LogSink& log,
           std::optional<DurableSteps> durable = std::nullopt, const TeamOfRun& team = {});
  StepLoop(const StepLoop&) = delete;
  StepLoop& operator=(const StepLoop&) = delete;

  // Loads the state: from the checkpoint, or from the model's weights or the seed, or as the store holds it. With durable steps
  // the state is durable on return. Frozen weights always come from the model; returns their hash, or nothing if there are none.
  // Throws InputError if it is not the one in `of_base`, the directory of a run or of a checkpoint, unless that is empty.
  std::optional<std::uint64_t> begin(const std::optional<LoadedCheckpoint>& checkpoint, const std::string& of_base = {});
  // Copies a checkpoint of the state after `step` while steps go on. Only one copy at a time. Returns null if that is impossible:
  // steps are not durable and some state rests outside the memory of a CPU device; or steps are durable but may be taken back; or
  // there are several ranks.
  // The copy must end before the loop.
  std::unique_ptr<CheckpointCopy> begin_copy(const RunDirectory& directory, std::int64_t step);
  // Removes the store's files; nobody will go on with their contents.
  void give_up_store();

  // Returns true if a step may be submitted before the one before it has ended.
  bool steps_overlap() const noexcept;
  void submit(std::int64_t step);  // `step` from 0; returns once its tokens are filled
  // Of fp16: the loss scale follows from the step. A step that was skipped and may not be counts as stopped, as nothing that a
  // later one could do is left.
  StepOutcome wait();
  // Notes the loss scale's state in the run directory from now on, the present one as that after `step`; in types that have none,
  // that a former run left none.
  void keep_loss_scale(const std::string& directory, std::int64_t step);
  // What the step that was waited for was scaled by; nothing in other types.
  std::optional<double> loss_scale() const;

  Executor& executor() noexcept { return *executor_; }
  double lr(std::int64_t step) const { return schedule_.lr(step, last_skipped_); }  // step from 0: the one that was waited for

 private:
  const RunOptions& options_;
  const PreparedModel& model_;
  const Plan& plan_;
  BatchSampler& data_;
  LrSchedule schedule_;
  std::optional<LossScaleState> scale_;  // of the next step, where the run is in fp16
  double last_scale_ = 1;                // of the step that was waited for
  std::int64_t last_skipped_ = 0;        // steps before that one that applied nothing
  std::optional<LossScaleFile> scale_file_;
  const std::optional<DurableSteps> durable_;
  std::vector<std::uint64_t> orphans_of(int rank, const LogSink& log) const;
  void begin_others(const TeamOfRun& team, const LogSink& log);
  void tell_others(TeamQuestion question);
  std::uint64_t write_new_state(const UnitGraph& graph, BlocksToWrite blocks);
  ExecutorOptions executor_options() const;
  void begin_loss_scale(const std::optional<LoadedCheckpoint>& checkpoint);
  void judge(StepOutcome& outcome);

  ProcessTeam* const team_;
  const LogSink log_;                                 // also called from a thread of the executor
  std::vector<std::unique_ptr<RankStore>> stores_;    // of the ranks of this process
  std::vector<std::unique_ptr<RemoteRank>> remotes_;  // the others
  std::optional<TeamNetwork> network_;                // where ranks are processes
  std::optional<Executor> executor_;
};

}  // namespace spillway
