// The bytes that ranks send each other in a step, by their closed form: counts of parameters, ranks and times, whatever carries
// the bytes. Not here: the bytes that were sent (offload/executor_options.h: StepOutcome::moved).
#pragma once

#include <string>

#include "memory/plan/plan.h"

namespace spillway {

// Summed over ranks, of a step like all but the first: gradients that are added, weights that are gathered, and control words,
// which are losses and sums of squares.
struct NetworkFigures {
  Bytes sums = 0, gathers = 0, words = 0;
  Bytes all() const { return sums + gathers + words; }
};
NetworkFigures network_figures(const Plan& plan, const UnitGraph& graph);
// "a step sends 1.61 GB: 1.08 GB of gradients, 538 MB of weights, 1.5 KiB of control words"
std::string network_in_words(const NetworkFigures& figures);

}  // namespace spillway
