// What DeepSpeed's values say in our flags.
// Not here: names and types of keys (deepspeed_walk.h), what flags that were typed say (deepspeed_file.h).
#pragma once

#include <vector>

#include "trainer/options/deepspeed/deepspeed_says.h"

namespace spillway {

// Adds to walk.problems what contradicts itself or cannot be done, and to walk.notes.
std::vector<DeepSpeedSays> meaning_of_deepspeed(DeepSpeedWalk& walk, const BesideDeepSpeed& beside);

}  // namespace spillway
