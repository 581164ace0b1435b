// The last pass checks that a plan is sound, from its bytes and waits alone. Not here: how waits are derived (waits.h).
#pragma once

#include "memory/plan/plan.h"

namespace spillway {

// Recomputes every invariant that the executor relies on and throws Error (exit 1 for a plan of ours, used with InputError's exit
// code for a plan from a file by the caller): operands inside buffers, buffers inside tiers, live buffers disjoint, waits
// acyclic and covering every conflict.
void validate(const Plan& plan, const UnitGraph& graph);

}  // namespace spillway
