// One plan at work: its store, its executor with the state, and the steps that go through it. What train and verify share.
// Not here: what is done with a step's outcome (trainer.h, verify.h), planning (prepared_run.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "nvme/store.h"
#include "offload/executor.h"
#include "trainer/checkpoint.h"
#include "trainer/data.h"
#include "trainer/lr_schedule.h"
#include "trainer/prepared_run.h"

namespace spillway {

class StepLoop {
 public:
  // Everything given is kept and must outlive the loop. Reserves all memory of the plan.
  StepLoop(const RunOptions& options, const PreparedModel& model, const Plan& plan, BatchSampler& data, const LogSink& log);
  StepLoop(const StepLoop&) = delete;
  StepLoop& operator=(const StepLoop&) = delete;

  // State from the checkpoint, or from the model's weights or the seed.
  void begin(const std::optional<LoadedCheckpoint>& checkpoint);

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
  std::unique_ptr<Store> store_;
  std::optional<Executor> executor_;
};

}  // namespace spillway
