// A rank of this process: its memory, its lanes and its part of the state.
// Not here: which rank has an element (executor.h), what crosses ranks (collectives/communicator.h).
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "collectives/communicator.h"
#include "offload/bound_program.h"
#include "offload/committer.h"
#include "offload/executor_options.h"
#include "offload/generations.h"
#include "offload/lane_runner.h"
#include "offload/operations.h"
#include "offload/rank.h"
#include "offload/state_extents.h"
#include "offload/state_hold.h"
#include "offload/step_settings.h"
#include "offload/tier_memory.h"
#include "offload/update_hashes.h"

namespace spillway {

class RankExecutor final : public Rank {
 public:
  // `communicator`, and `committers` by which commits agree: null for an only rank. All must outlive this.
  RankExecutor(const ExecutorOptions& options, const RankResources& with, Communicator* communicator, Transport* committers);
  ~RankExecutor() override;
  RankExecutor(const RankExecutor&) = delete;
  RankExecutor& operator=(const RankExecutor&) = delete;

  void write_state(int block, StateKind kind, std::int64_t begin, std::span<const std::byte> data) override;
  void read_state(int block, StateKind kind, std::int64_t begin, std::span<std::byte> data) override;
  void fill_step(const FillTokens& fill) override;
  void fill_forward(const std::optional<LogitsRequest>& request, const FillTokens& fill) override;
  void begin_step(const StepSettings& settings) override;
  void begin_forward(const std::optional<LogitsRequest>& request) override;
  bool begin_flush() override;
  bool begin_commit(std::int64_t step) override;
  bool begin_again() override;
  void wait() override { last_ = &runner_->wait_for_oldest(); }
  StepOutcome outcome() override;
  double loss_sum() override { return last_->step->loss_sum; }
  void acknowledge() override;

  // Of the forward that was waited for.
  std::span<const float> logits();

  StateHold hold();
  void check_idle(const char* what) const { runner_->check_idle(what); }
  bool has_waiting_update() const { return waiting_step_ != nullptr; }

 private:
  static Device& prepared(const ExecutorOptions& options, Device& device);
  By<Lane, StoreChannel*> channels();
  void fill_constants();
  void fill_tokens(int token_set, int micro_batches, std::size_t rows, const FillTokens& fill);
  int present_slot(const Buffer& buffer) const { return buffer.slots == 2 ? generations_.present().slot : 0; }
  Run& next_run(const StepSettings& settings);
  Run& next_alone(TurnSet alone);
  void go_through_turns(Run& run) const;
  std::size_t shown_spans() const;
  double end_of(const Run& run) const;
  Timeline timeline_of(const Run& run) const;

  const ExecutorOptions options_;
  const Plan& plan_;
  const UnitGraph& graph_;
  TierMemory memory_;
  const std::unique_ptr<StateExtents> extents_;        // null where state is not durable
  const std::unique_ptr<UpdateHashes> update_hashes_;  // the same
  Operations operations_;
  BoundProgram bound_step_, bound_evaluate_, bound_one_row_;
  std::optional<StoreChannel> readers_, writers_;
  std::vector<std::int32_t> filled_;  // arrays of some micro-batches, on their way to the device
  std::vector<float> last_logits_;    // logits of the last forward
  std::optional<Committer> committer_;
  Generations generations_;

  double last_end_s_ = 0;
  std::atomic<int> holds_{0};         // holds of durable state: no other state becomes durable meanwhile
  std::atomic<int> updates_held_{0};  // holds of state that is not durable
  std::int64_t returned_step_ = -1;   // the last step whose outcome was returned
  // Control blocks of the two steps that may be under way, and of the step before whose gradients the older of them applies.
  std::array<StepControl, 3> steps_;
  std::int64_t next_of_steps_ = 0;
  StepControl* waiting_step_ = nullptr;  // the step whose gradients have not been applied; null: there is none
  Run* last_ = nullptr;                  // the run that was waited for
  By<Lane, Bytes> moved_before_;         // by the first run of a step that was run again

  std::optional<SlowCollective> slow_collective_;
  std::optional<LaneRunner> runner_;  // last: its threads end before what they use
};

}  // namespace spillway
