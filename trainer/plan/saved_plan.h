// A plan out of its file: compiled again from its choices, and taken only where it comes out as the file says.
// Not here: the file (plan_file.h), its choices (plan_choices.h).
#pragma once

#include <optional>
#include <string>

#include "memory/search/planner.h"
#include "trainer/machine/drive_rates.h"

namespace spillway {

// The plan of a file made by plan_json, compiled again from its choices. InputError where it is of another model, batch or state
// form, does not fit the budgets, or does not come out with the peaks that the file names.
PlanOutcome outcome_from_file(const std::string& file, const GraphCandidates& graphs, const MachineProfile& machine,
                              const PlanRequest& request);

// The machine that the plan of a file was made for; nothing where the file does not say.
std::optional<MeasuredProfile> machine_of_plan(const std::string& file);

}  // namespace spillway
