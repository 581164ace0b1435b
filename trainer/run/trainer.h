// Trains: the loop over steps, with data, schedule, log, evaluation and checkpoints around the executor.
// Not here: planning (trainer/plan/prepared_run.h), running a step (offload/executor.h).
#pragma once

#include "trainer/options/options.h"
#include "trainer/options/resolve_options.h"

namespace spillway {

// Returns the exit code: 0, or 130 after an interruption; with --save the state is saved first. Throws an Error for everything
// else.
int train(const ResolvedOptions& resolved);

}  // namespace spillway
