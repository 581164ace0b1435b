// Runs a plan: each lane takes its operations in the plan's order and starts each when what it waits for is complete.
// Nothing is allocated, placed or decided while it runs; what it records has the plan's operation ids.
// Not here: what to train on and when to stop (trainer/).
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "memory/parallel.h"
#include "memory/plan.h"
#include "memory/timeline.h"
#include "models/unit_code.h"
#include "nvme/store.h"
#include "offload/adamw_settings.h"
#include "offload/committer.h"
#include "offload/device.h"
#include "offload/state_hold.h"

namespace spillway {

struct ExecutorOptions {
  const Plan* plan = nullptr;                 // validated; must outlive the executor, as all below
  const CompiledModel* model = nullptr;       // of the plan's graph
  const CompiledModel* evaluation = nullptr;  // with the tiled head; may be null where nothing is evaluated
  // The evaluation's units compiled for a single row of the same context; may be null where nothing is generated.
  const CompiledModel* one_row = nullptr;
  Device* device = nullptr;  // its backend is prepared here for the models
  const ThreadPool* pool = nullptr;
  Store* store = nullptr;                         // null where the plan uses no NVMe
  std::uint64_t seed = 0;                         // of stochastic rounding
  const DurabilityOptions* durability = nullptr;  // null: the state does not outlive the process
  std::size_t ahead = 64;                         // operations that a lane of the device's enqueues ahead of it
};

// What one step is told.
struct StepSettings {
  AdamWSettings adamw;              // but for the clip factor, which the step finds, and the seed, which is the run's
  double clip = 0;                  // of the norm; 0: off; must be off or on as in the plan
  std::int64_t counted_tokens = 1;  // positions with loss in all micro-batches, whose mean is the loss; no update divides by it
};

// Fills inputs and targets [n] of a micro-batch.
using FillTokens = std::function<void(int micro_batch, std::span<std::int32_t> tokens, std::span<std::int32_t> targets)>;

// Which logits are wanted of a forward.
struct LogitsRequest {
  bool single_row = false;    // by the units of ExecutorOptions::one_row
  std::int64_t position = 0;  // of the first row in its sequence; not 0 only where keys and values are cached
  std::int64_t row = 0;
};

struct StepOutcome {
  std::int64_t step = 0;
  double loss = 0, grad_norm = 0;
  std::string stopped;       // not empty: loss, gradient or norm was not finite; nothing of it was applied...
  bool state_intact = true;  // ...or, false: some blocks had been updated before it was known (see the plan)
  double seconds = 0;        // from the end of the step before, or from submission, to the end of this one
  By<Lane, Bytes> moved;     // bytes, by the lanes of this step's operations, however steps overlap
  By<Tier, Bytes> peak;      // highest byte touched on each tier so far
  Timeline timeline;
};

class Executor {
 public:
  explicit Executor(const ExecutorOptions& options);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Elements [begin, begin + bytes / element size) of a block's array. `begin` is a multiple of kBlockElements, `data` aligned to
  // kExtentAlignment and a multiple of it in size. Only while no step is under way, and with no update waiting (flush() first).
  void write_state(int block, StateKind kind, std::int64_t begin, std::span<const std::byte> data);
  void read_state(int block, StateKind kind, std::int64_t begin, std::span<std::byte> data);

  // Starts a step and returns once its tokens are filled; up to two steps may be under way. What `fill` throws comes out, here as
  // below, and nothing has begun.
  void submit(const StepSettings& settings, const FillTokens& fill);
  // Returns when the oldest step under way is complete (its writes, too, are with the drive). Throws what a lane threw; then
  // nothing more runs. Where the plan defers the update, that of this step is in the next one's run: it may not have begun. Of a
  // step that was submitted before an earlier one was found to have stopped, nothing that it returns means anything.
  StepOutcome wait();

  // The present state, as that after `step` steps, kept for as long as the hold lives. Only while no step is under way, with no
  // update waiting. With ExecutorOptions::durability it is made durable first; so it must be before the first step, unless the
  // store holds the state. From then on steps that the interval divides, but not while a hold lives, are made durable by the run
  // of the step after, once the caller has come back with submit() or wait() after wait() returned them: they are durable when
  // wait() returns that next step. Not to be held where steps may be taken back, which takes both slots; without durability only
  // where all state rests on the device.
  StateHold hold_state(std::int64_t step);

  // Applies an update that waits for the next forward. Only while no step is under way.
  void flush();
  // Sum of the losses of one micro-batch's targets. Only while no step is under way; flushes first.
  double evaluate(const FillTokens& fill);
  // The logits [V] of one row of such a micro-batch, valid until the next forward. Of plans that have room for them.
  std::span<const float> logits(const LogitsRequest& request, const FillTokens& fill);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace spillway
