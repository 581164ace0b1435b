// Lifetimes -> offsets: gives every buffer of a plan its place, and each tier its exact peak.
#pragma once

#include <vector>

#include "memory/plan.h"

namespace spillway {

// Fills Buffer::offset, Plan::peak and Plan::at_rest. Buffers whose lifetimes do not meet share bytes.
void pack(Plan& plan);

// Of the device, at each operation, the end of the highest buffer that is alive and not packed apart, where those that are packed
// come to lie above `base`.
std::vector<Bytes> ends_below(const Program& program, Bytes base);

}  // namespace spillway
