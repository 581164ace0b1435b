// Writes a plan as a command line that plans the same again.
// Not here: parsing a command line (trainer/options/options.h), the meaning of flags (trainer/options/flag_table.h).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trainer/plan/planned_run.h"

namespace spillway {

// Flags as typed ("--seq-length 512"), quoted for a shell if necessary: the flags that were given, the budgets that were found
// and, if the run fits, order, update and durability as chosen.
std::vector<std::string> plan_flags(const PlannedRun& run, const PreparedModel& model, const RunOptions& options);

// `text` as one word of a shell's command line.
std::string shell_word(std::string_view text);

}  // namespace spillway
