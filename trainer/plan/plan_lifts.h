// Finds what would make the steps of a plan faster: plans the same run again with one choice changed.
// Not here: what bounds the plan as it is (memory/search/bound.h), what would make an unfitting run fit (prepared_run.h).
#pragma once

#include <vector>

#include "trainer/plan/planned_run.h"

namespace spillway {

// Returns the changes that gain, fastest first. Each was planned by a short search: with these flags a run is planned to be no
// slower than the lift says. Empty if compute takes nearly all of the step anyway, or if the plan comes from a file.
std::vector<Lift> lifts_of(const PlannedRun& run, const PreparedModel& model, const RunOptions& options);

}  // namespace spillway
