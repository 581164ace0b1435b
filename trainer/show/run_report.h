// Shows a run beside its plan, as one self-contained page and as a few lines: curves, both timelines, operations that cost more
// than planned.
// Not here: the analysis (run_analysis.h), how a page is made (page.h).
#pragma once

#include <string>

#include "trainer/show/run_record.h"

namespace spillway {

std::string report_page(const RunRecord& run);

// Within 100 columns.
std::string report_summary(const RunRecord& run);

}  // namespace spillway
