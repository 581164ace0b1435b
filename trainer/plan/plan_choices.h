// The choices of a saved plan, read from its file, which anybody may have edited: what cannot be is refused by its key.
// Not here: whether the plan that they make is the one in the file (plan_file.h).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "memory/planner.h"

namespace spillway {

inline constexpr std::string_view kPlanWasEdited =
    "The file was edited, or is of another model, batch, machine or version: plan again.";

// InputError where the file is no plan, or of another model.
Choices choices_of(const nlohmann::json& json, const std::string& file, const GraphCandidates& graphs);

}  // namespace spillway
