// The time for which an operation had its lane to itself, predicted or recorded, in a running plan or a finished run.
// Not here: when it ran (memory/plan/timeline.h).
#pragma once

#include <span>
#include <vector>

#include "memory/base/types.h"
#include "memory/plan/timeline.h"

namespace spillway {

// Seconds of its lane that each operation took. If requests overlap, an operation's time begins at the end of the one before.
std::vector<double> lane_seconds(std::span<const Lane> lanes, std::span<const Span> spans);

}  // namespace spillway
