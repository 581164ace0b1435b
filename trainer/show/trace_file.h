// The recorded timeline, and the planned one beside it, in the JSON of Chrome's trace viewer, which Perfetto opens.
// Not here: the analysis (run_analysis.h).
#pragma once

#include <string>

#include "trainer/show/run_record.h"

namespace spillway {

// One process for each timeline, one thread for each lane, and a further thread for each overlapping request of a lane. For a run
// that was timed.
std::string trace_text(const RunRecord& run);

}  // namespace spillway
