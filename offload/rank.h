// A rank as the executor sees it: one of this process (rank_executor.h), or of another that is asked (remote_rank.h). Runs of
// several ranks meet in collectives, so each is begun on all ranks before any is waited for. Not here: which rank has an element
// (executor.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "offload/executor_options.h"
#include "offload/step_settings.h"

namespace spillway {

class Rank {
 public:
  virtual ~Rank() = default;

  // As the executor's, but elements count from the first of this rank's part.
  virtual void write_state(int block, StateKind kind, std::int64_t begin, std::span<const std::byte> data) = 0;
  virtual void read_state(int block, StateKind kind, std::int64_t begin, std::span<std::byte> data) = 0;

  // Fill the tokens of the next step, or of a forward over a micro-batch or a row; where that throws, nothing has begun.
  virtual void fill_step(const FillTokens& fill) = 0;
  virtual void fill_forward(const std::optional<LogitsRequest>& request, const FillTokens& fill) = 0;
  // These begin a run: a step or a forward with the tokens filled, the updates that wait, the commit of the present state after
  // `step`, and once more the step that was waited for, where its norm disagrees with the factor that it took. False: there is
  // nothing to do, and nothing has begun.
  virtual void begin_step(const StepSettings& settings) = 0;
  virtual void begin_forward(const std::optional<LogitsRequest>& request) = 0;
  virtual bool begin_flush() = 0;
  virtual bool begin_commit(std::int64_t step) = 0;
  virtual bool begin_again() = 0;

  // Waits for the oldest run. The others are about that run. The outcome of a rank of another process has no timeline.
  virtual void wait() = 0;
  virtual StepOutcome outcome() = 0;
  virtual double loss_sum() = 0;

  // The caller has come back, so it has made use of the step that it was given before. Evaluation and flush() do not acknowledge:
  // their results may be written down together with the step.
  virtual void acknowledge() = 0;
};

}  // namespace spillway
