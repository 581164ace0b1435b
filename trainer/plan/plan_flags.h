// A plan as a command line: every choice that the planner made is forced, so that the same flags plan the same again.
// Not here: parsing one (trainer/options/options.h), what a flag means (trainer/options/flag_table.h).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trainer/plan/planned_run.h"

namespace spillway {

// Flags as typed ("--seq-length 512"), quoted for a shell where they must be: what was asked for, the budgets that were found,
// and, where the run fits, order, update and durability as chosen.
std::vector<std::string> plan_flags(const PlannedRun& run, const PreparedModel& model, const RunOptions& options);

// One word of a shell's command line that means `text`.
std::string shell_word(std::string_view text);

}  // namespace spillway
