// A rank other than 0 that is a process: it does what rank 0 asks, and neither reads data nor prints. Signals are rank 0's
// concern. Not here: the questions that the executor asks (offload/remote_rank.h).
#pragma once

#include "trainer/options/options.h"
#include "trainer/run/process_team.h"

namespace spillway {

// Returns the exit code that rank 0 says. Throws an Error where rank 0 is gone.
int follow(RunOptions options, ProcessTeam& team);

}  // namespace spillway
