// Loads a plan from its file: compiles it again from its choices and accepts it only if the result is as the file says.
// Not here: the file (plan_file.h), its choices (plan_choices.h).
#pragma once

#include <optional>
#include <string>

#include "memory/search/planner.h"
#include "trainer/machine/drive_rates.h"

namespace spillway {

// Loads a file made by plan_json, compiled again from its choices. Throws InputError if it is for another model, batch or state
// form, does not fit the budgets, or does not have the peaks that the file names.
PlanOutcome outcome_from_file(const std::string& file, const GraphCandidates& graphs, const MachineProfile& machine,
                              const PlanRequest& request);

// The machine that the file's plan was made for; nothing if the file does not say.
std::optional<MeasuredProfile> machine_of_plan(const std::string& file);

}  // namespace spillway
