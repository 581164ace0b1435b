// What lives as long as the run, and so is a plan's first: state on its tiers, gradients that wait into the next step, words of
// control. Not here: what lives within a step (task_list.h, schedule.h), offsets (packing.h).
#pragma once

#include <array>
#include <string_view>

#include "memory/plan.h"

namespace spillway {

inline constexpr std::array<StateKind, kStateKinds> kKinds = {StateKind::weight, StateKind::low, StateKind::m, StateKind::v};
std::string_view name_of_kind(StateKind kind);  // ".weight": what follows a block's name
Category category_of(StateKind kind);

// Adds what lives as long as the run: state on its tiers, gradients that wait into the next step, control words, tokens.
void add_resident_buffers(const UnitGraph& graph, Plan& plan);

// The same for a plan that only evaluates: weights, values that last, control words, tokens, the logits of a row.
void add_inference_buffers(const UnitGraph& graph, Plan& plan);

}  // namespace spillway
