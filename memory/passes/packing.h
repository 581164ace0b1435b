// The pass from lifetimes to offsets: gives every buffer of a plan its place, and each tier its exact peak.
#pragma once

#include "memory/plan/plan.h"

namespace spillway {

// Fills Buffer::offset, Plan::peak and Plan::at_rest. Buffers whose lifetimes do not overlap may share bytes.
void pack(Plan& plan);

}  // namespace spillway
