// How full each tier is over a step of the plan, by category: from the lifetimes of buffers and the predicted timeline.
// Not here: the bytes that are reserved, which do not change (Plan::peak), drawing (page.h).
#pragma once

#include <array>
#include <vector>

#include "memory/plan.h"
#include "memory/timeline.h"

namespace spillway {

// Of each category, bytes in use in each of the columns that the step is divided into; a column shows its fullest moment.
using TierPicture = std::array<std::vector<Bytes>, kCategories>;

// Steps follow one another: what one step still uses while the next has begun is counted in both.
TierPicture tier_picture(const Plan& plan, const Timeline& timeline, double step_s, Tier tier, int columns);

}  // namespace spillway
