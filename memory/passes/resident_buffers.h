// The buffers of a plan that live as long as the run; they are added first: state on its tiers, gradients that wait into the next
// step, control words. Not here: buffers that live within a step (task_list.h, schedule.h), offsets (packing.h).
#pragma once

#include "memory/plan/plan.h"

namespace spillway {

// Adds the resident buffers: state on its tiers, gradients that wait into the next step, control words, tokens.
void add_resident_buffers(const UnitGraph& graph, Plan& plan);

// The same for a plan that only evaluates: weights, values that last, control words, tokens, the logits of a row.
void add_inference_buffers(const UnitGraph& graph, Plan& plan);

}  // namespace spillway
