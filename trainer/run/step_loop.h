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
#include "trainer/data/data.h"
#include "trainer/keep/checkpoint.h"
#include "trainer/keep/checkpoint_copy.h"
#include "trainer/options/lr_schedule.h"
#include "trainer/plan/prepared_model.h"

namespace spillway {

// A store that outlives the process, one for each rank, for a run whose steps are durable.
struct DurableSteps {
  std::uint64_t store_id = 0;
  std::string run_directory;
  bool yields = false;  // another run may take over the store: see StoreIdentity
  std::int64_t interval = 1;
  std::vector<CommitRecord> from;  // [ranks] if the stores hold the state from which the run goes on in place; else empty
};

class StepLoop {
 public:
  // Keeps references to all arguments, which must outlive the loop. Reserves all memory of the plan.
  StepLoop(const RunOptions& options, const PreparedModel& model, const Plan& plan, BatchSampler& data, const LogSink& log,
           std::optional<DurableSteps> durable = std::nullopt);
  StepLoop(const StepLoop&) = delete;
  StepLoop& operator=(const StepLoop&) = delete;

  // Loads the state: from the checkpoint, or from the model's weights or the seed, or as the store holds it. With durable steps
  // the state is durable on return.
  void begin(const std::optional<LoadedCheckpoint>& checkpoint);
  // Copies a checkpoint of the state after `step` while steps go on. Only one copy at a time. Returns null if that is impossible:
  // steps are not durable and some state rests outside the memory of a CPU device; or steps are durable but may be taken back; or
  // there are several ranks.
  // The copy must end before the loop.
  std::unique_ptr<CheckpointCopy> begin_copy(const RunDirectory& directory, std::int64_t step);
  // Removes the store's files; nobody will go on with their contents.
  void give_up_store() noexcept;

  // Returns true if a step may be submitted before the one before it has ended.
  bool steps_overlap() const noexcept;
  void submit(std::int64_t step);  // `step` from 0; returns once its tokens are filled
  StepOutcome wait() { return executor_->wait(); }

  Executor& executor() noexcept { return *executor_; }
  double lr(std::int64_t step) const { return schedule_.lr(step); }  // step from 0

 private:
  const RunOptions& options_;
  const PreparedModel& model_;
  const Plan& plan_;
  BatchSampler& data_;
  LrSchedule schedule_;
  const std::optional<DurableSteps> durable_;
  // A store for each rank, where the plan uses NVMe; their directories, if each has its own, go with them.
  struct RankStore {
    std::vector<std::string> own_directories;  // empty for an only rank, whose directories are the user's
    std::unique_ptr<Store> store;
    std::optional<DurabilityOptions> durability;
    ~RankStore();
  };
  void open_store_of(int rank, const LogSink& log);
  RankResources rank_with(int rank) const;
  ExecutorOptions executor_options() const;

  std::vector<std::unique_ptr<RankStore>> stores_;
  std::optional<Executor> executor_;
};

}  // namespace spillway
