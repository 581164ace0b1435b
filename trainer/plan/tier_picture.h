// How full each tier is over a step, by category: from what operations touch and when they run, as predicted or as recorded.
// Not here: the bytes that are reserved, which do not change (Plan::peak), drawing (trainer/show/page.h).
#pragma once

#include <limits>
#include <span>
#include <vector>

#include "memory/plan.h"
#include "memory/timeline.h"

namespace spillway {

// Of each category, bytes in use in each of the columns that the step is divided into; a column shows its fullest moment.
using TierPicture = By<Category, std::vector<Bytes>>;

struct BufferUse {
  Tier tier = Tier::device;
  Category category = Category::staging;
  Bytes bytes = 0;
  std::vector<int> ops;  // that are the first to touch it, or the last of their lane
};

// What of the tiers a step uses.
struct StepUse {
  By<Tier, By<Category, Bytes>> resident;
  std::vector<BufferUse> buffers;  // of each turn
  std::size_t operations = 0;      // of a turn
};
StepUse step_use(const Plan& plan);

// `spans`: of every operation of each turn whose times there are. Steps follow one another: what one step still uses while the
// next has begun is counted in both. `most`: of the tier. Steps as planned need no more; of steps that ran, each took another
// time, and where this one and the one before would need more together, the one before was through with it.
TierPicture tier_picture(const StepUse& use, std::span<const Span> spans, double step_s, Tier tier, int columns,
                         Bytes most = std::numeric_limits<Bytes>::max());

}  // namespace spillway
