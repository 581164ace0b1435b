// What would make the steps of a plan faster: the same run planned again with one choice made otherwise.
// Not here: what bounds it as it is (memory/search/bound.h), what would make a run fit that does not (prepared_run.h).
#pragma once

#include <vector>

#include "trainer/plan/planned_run.h"

namespace spillway {

// Those that gain, fastest first; each was planned, by a short search: with its flags a run is planned to be no slower than that.
// None where compute takes nearly all of the step anyway, nor for a plan from a file.
std::vector<Lift> lifts_of(const PlannedRun& run, const PreparedModel& model, const RunOptions& options);

}  // namespace spillway
