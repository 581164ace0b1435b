// Writes the choices of a plan to plan.json and reads them back. Anybody may have edited the file: an impossible choice is
// refused by its key.
// Not here: whether the resulting plan is the one in the file (saved_plan.h).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "memory/search/planner.h"

namespace spillway {

inline constexpr std::string_view kPlanWasEdited =
    "The file was edited, or is of another model, batch, machine or version: plan again.";

nlohmann::ordered_json choices_json(const Choices& choices);

// Throws InputError if the file is no plan, or a plan for another model.
Choices choices_of(const nlohmann::json& json, const std::string& file, const GraphCandidates& graphs);

}  // namespace spillway
