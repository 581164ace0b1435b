// For a run that does not fit: finds flags with which it does. Each offer has been planned, and can be typed as it stands.
// Not here: which tier is short (memory/search/planner.h).
#pragma once

#include <string>

#include "trainer/plan/planned_run.h"

namespace spillway {

// Tries a larger budget on the short tier, a directory for spilling, smaller state and smaller micro-batches. Offers that this
// machine (or the planned one) has room for come first; others are made only if there are none of these.
WouldFit flags_that_fit(const PlannedRun& run, const PreparedModel& model, const RunOptions& options);

// "Each of these fits:" and one line of flags for each offer, or general advice if no offer fits. Without a newline at the end.
std::string words_of(const WouldFit& would_fit);

}  // namespace spillway
