// The data that a plan depends on. Not here: the data (trainer/data/data.h).
#pragma once

#include <optional>

#include "trainer/data/data.h"
#include "trainer/options/options.h"

namespace spillway {

// With --epochs or --packing, a plan depends on --data: on its number of steps, and on the length of its documents. Reads it
// then, and sets what the options take from it; nothing otherwise, or without --data.
std::optional<BatchSampler> data_before_plan(RunOptions& options);

}  // namespace spillway
