// The recorded timeline, and the planned one beside it, in the JSON of Chrome's trace viewer, which Perfetto opens.
// Not here: what is worth looking at in it (run_analysis.h).
#pragma once

#include <string>

#include "trainer/show/run_record.h"

namespace spillway {

// A process for each timeline, a thread for each lane; where a lane's requests overlap, a further thread for each that overlaps.
// Of a run that was timed.
std::string trace_text(const RunRecord& run);

}  // namespace spillway
