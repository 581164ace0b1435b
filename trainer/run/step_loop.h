// One plan at work: its store, its executor with the state, and the steps that go through it. What train and verify share.
// Not here: what is done with a step's outcome (trainer.h, verify.h), planning (trainer/plan/prepared_model.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "nvme/store.h"
#include "offload/executor.h"
#include "trainer/data/data.h"
#include "trainer/keep/checkpoint.h"
#include "trainer/keep/checkpoint_copy.h"
#include "trainer/options/lr_schedule.h"
#include "trainer/plan/prepared_model.h"

namespace spillway {

// A store that outlives the process, for a run whose steps are durable.
struct DurableSteps {
  std::uint64_t store_id = 0;
  std::string run_directory;
  bool yields = false;   // whether another run may have the store: see StoreIdentity
  DurableLayout layout;  // of the plan
  std::int64_t interval = 1;
  std::optional<CommitRecord> from;  // where the store holds the state to go on with, in place
};

class StepLoop {
 public:
  // Everything given is kept and must outlive the loop. Reserves all memory of the plan.
  StepLoop(const RunOptions& options, const PreparedModel& model, const Plan& plan, BatchSampler& data, const LogSink& log,
           std::optional<DurableSteps> durable = std::nullopt);
  StepLoop(const StepLoop&) = delete;
  StepLoop& operator=(const StepLoop&) = delete;

  // State from the checkpoint, or from the model's weights or the seed, or as the store holds it; durable then where steps are.
  void begin(const std::optional<LoadedCheckpoint>& checkpoint);
  // A checkpoint of the state after `step`, copied while steps go on. Only while none is under way. Null where it cannot be:
  // steps are not durable and not all state rests on a device that is the CPU, or may be taken back. Must end before the loop.
  std::unique_ptr<CheckpointCopy> begin_copy(const RunDirectory& directory, std::int64_t step);
  // The store's files go with it: nobody will go on with what they hold.
  void give_up_store() noexcept;

  // Whether a step may be submitted before the one before it is waited for.
  bool steps_overlap() const noexcept;
  void submit(std::int64_t step);  // from 0; returns once its tokens are filled
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
  std::unique_ptr<Store> store_;
  std::optional<DurabilityOptions> durability_;
  std::optional<Executor> executor_;
};

}  // namespace spillway
