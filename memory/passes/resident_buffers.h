// What lives as long as the run, and so is a plan's first: state on its tiers, gradients that wait into the next step, words of
// control. Not here: what lives within a step (task_list.h, schedule.h), offsets (packing.h).
#pragma once

#include "memory/plan.h"

namespace spillway {

// Adds what lives as long as the run: state on its tiers, gradients that wait into the next step, control words, tokens.
void add_resident_buffers(const UnitGraph& graph, Plan& plan);

// The same for a plan that only evaluates: weights, values that last, control words, tokens, the logits of a row.
void add_inference_buffers(const UnitGraph& graph, Plan& plan);

}  // namespace spillway
