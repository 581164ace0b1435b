// The choices of a plan as plan.json has them: written, and read from a file that anybody may have edited, where what cannot be
// is refused by its key. Not here: whether the plan that they make is the one in the file (saved_plan.h).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "memory/search/planner.h"

namespace spillway {

inline constexpr std::string_view kPlanWasEdited =
    "The file was edited, or is of another model, batch, machine or version: plan again.";

nlohmann::ordered_json choices_json(const Choices& choices);

// InputError where the file is no plan, or of another model.
Choices choices_of(const nlohmann::json& json, const std::string& file, const GraphCandidates& graphs);

}  // namespace spillway
