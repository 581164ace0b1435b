// The settings of a step, and the logits that are wanted of a forward.
// Not here: who tells it (executor.h), what a step finds out (step_control.h).
#pragma once

#include <cstdint>

#include "offload/adamw_settings.h"

namespace spillway {

struct StepSettings {
  AdamWSettings adamw;              // but for the clip factor, which the step finds, and the seed, which is the run's
  double clip = 0;                  // of the norm; 0: off; must be off or on as in the plan
  std::int64_t counted_tokens = 1;  // positions with loss in all micro-batches, whose mean is the loss; no update divides by it
  // A factor of the gradients in fp16, until the norm and the updates divide by it; a power of two, so that no bit is lost.
  double loss_scale = 1;
  // True: where the loss or a gradient is not finite, the step applies nothing and the run goes on (StepOutcome::skipped); else
  // the run stops.
  bool skips = false;
};

// Which logits are wanted of a forward.
struct LogitsRequest {
  bool single_row = false;    // by the units of ExecutorOptions::one_row
  std::int64_t position = 0;  // of the first row in its sequence; not 0 only where keys and values are cached
  std::int64_t row = 0;
};

}  // namespace spillway
