// Where a run does not fit: flags with which it does. What is offered has been planned, and is typed as it stands.
// Not here: what lacks (memory/search/planner.h).
#pragma once

#include <string>

#include "trainer/plan/planned_run.h"

namespace spillway {

// Tries a larger budget on the tier that lacks, a directory for what spills, smaller state, smaller micro-batches. What this
// machine has, or the machine planned for, goes before what it has not: the latter is offered only where there is nothing else.
WouldFit flags_that_fit(const PlannedRun& run, const PreparedModel& model, const RunOptions& options);

// "Each of these fits:" and a line of flags each, or what may help where nothing that was tried does. Without an end of line.
std::string words_of(const WouldFit& would_fit);

}  // namespace spillway
