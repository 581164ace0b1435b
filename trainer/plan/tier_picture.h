// Shows how full each tier is over a step, by category, from the buffers that operations touch and the times at which they run,
// predicted or recorded.
// Not here: the reserved bytes, which do not change (Plan::peak), drawing (trainer/show/page.h).
#pragma once

#include <limits>
#include <span>
#include <vector>

#include "memory/plan/plan.h"
#include "memory/plan/timeline.h"

namespace spillway {

// For each category, the bytes in use in each column of the step; a column shows its fullest moment.
using TierPicture = By<Category, std::vector<Bytes>>;

struct BufferUse {
  Tier tier = Tier::device;
  Category category = Category::staging;
  Bytes bytes = 0;
  std::vector<int> ops;  // the first operation that touches it, and the last of each lane
};

// The memory that a step uses on the tiers.
struct StepUse {
  By<Tier, By<Category, Bytes>> resident;
  std::vector<BufferUse> buffers;  // in each turn
  std::size_t operations = 0;      // in a turn
};
StepUse step_use(const Plan& plan);

// `spans`: the operations of each turn that has times. Steps follow one another: memory that a step still uses after the next has
// begun counts in both. `most`: bytes of the tier. Planned steps never need more. Recorded steps vary in length: if this step and
// the one before together seem to need more, the step before had already freed the excess.
TierPicture tier_picture(const StepUse& use, std::span<const Span> spans, double step_s, Tier tier, int columns,
                         Bytes most = std::numeric_limits<Bytes>::max());

}  // namespace spillway
