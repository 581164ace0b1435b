// From choices to operations: compiles a unit graph into programs whose buffers have lifetimes but no places yet.
// Not here: offsets (packing.h), waits (waits.h), which choices are good (planner.h).
#pragma once

#include "memory/plan/plan.h"

namespace spillway {

// A plan without offsets and waits. Deterministic; linear in the number of operations.
Plan build_schedule(const UnitGraph& graph, const Choices& choices);

// A plan that evaluates and never trains: weights at rest, values that last, one forward. It uses the form, the weights' tiers
// and the bytes to read ahead of `choices`.
Plan build_inference(const UnitGraph& graph, const Choices& choices);

// A forward over one micro-batch that leaves its loss in the loss buffer, for `graph` with a tiled head and the blocks of the
// plan's own graph; resident buffers are the plan's.
Program build_evaluation(const UnitGraph& graph, const Plan& plan);

}  // namespace spillway
