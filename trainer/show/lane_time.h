// How long an operation had its lane to itself: predicted or recorded, of a plan at work or of a run that is over.
// Not here: when it ran (memory/timeline.h).
#pragma once

#include <span>
#include <vector>

#include "memory/timeline.h"
#include "memory/types.h"

namespace spillway {

// Seconds of its lane that each operation took; of requests that overlap, from the end of the one before.
std::vector<double> lane_seconds(std::span<const Lane> lanes, std::span<const Span> spans);

}  // namespace spillway
