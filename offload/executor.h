// Runs a plan, on all its ranks: each lane takes its operations in the plan's order and starts each when all operations that it
// waits for are complete. Nothing is allocated, placed or decided while it runs; recorded times have the plan's operation ids.
// Not here: what to train on and when to stop (trainer/).
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "offload/executor_options.h"
#include "offload/state_hold.h"
#include "offload/step_settings.h"

namespace spillway {

class Executor {
 public:
  explicit Executor(const ExecutorOptions& options);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Write and read elements [begin, begin + bytes / element size) of a block's array, on all ranks that have them. `begin` is a
  // multiple of kBlockElements; `data` is aligned to kExtentAlignment and a multiple of it in size. Only while no step is under
  // way and no update waits (flush() first).
  void write_state(int block, StateKind kind, std::int64_t begin, std::span<const std::byte> data);
  void read_state(int block, StateKind kind, std::int64_t begin, std::span<std::byte> data);

  // Starts a step and returns once its tokens are filled; up to two steps may be under way. Passes on exceptions of `fill`, here
  // as below; nothing has begun then.
  void submit(const StepSettings& settings, const FillTokens& fill);
  // Returns when the oldest step under way is complete (the drive has its writes, too). Throws a lane's exception; then nothing
  // more runs. Where the plan defers updates, this step's are in the next one's run and may not have begun. The outcome of a step
  // that was submitted before an earlier one was found to have stopped means nothing.
  StepOutcome wait();

  // Keeps the present state, as that after `step` steps, for as long as the hold lives. Only while no step is under way and no
  // update waits. With ExecutorOptions::durability the state is made durable first; so with durability a hold is needed before
  // the first step, unless the store holds the state. From then on steps that the interval divides become durable, but not while
  // a hold lives: the run of the next step commits them, once the caller has come back with submit() or wait() after wait()
  // returned them. They are durable when wait() returns that next step. State cannot be held where steps may be taken back, which
  // takes both slots; without durability only where all state rests on the device, and only that of an only rank. A hold of
  // several ranks must end before the next step.
  StateHold hold_state(std::int64_t step);

  // Applies updates that wait for the next forward. Only while no step is under way.
  void flush();
  // Sum of the losses of the targets of one micro-batch on each rank. Only while no step is under way; flushes first.
  double evaluate(const FillTokens& fill);
  // The logits [V] of one row of such a micro-batch, valid until the next forward. Only for plans that have room for them.
  std::span<const float> logits(const LogitsRequest& request, const FillTokens& fill);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace spillway
