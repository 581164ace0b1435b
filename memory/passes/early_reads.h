// Moves reads for updates ahead, into room that the program leaves: towards the end of a backward, as activations go, there is
// room for state whose update has no compute behind it to hide in. Reads stay within one run's program: those for updates that
// wait for the next run are in that run's.
// Not here: how far ahead everything is read at least (reach.h).
#pragma once

#include "memory/passes/residency.h"
#include "memory/passes/tasks.h"

namespace spillway {

// Moves fetches from their homes ahead, of objects that compute does not touch. A fetch passes a task where its tier then holds
// at most 15/16 of its peak: the rest is lost between buffers. No fetch passes one that is wanted before it: their lane brings
// one after the other.
void read_early(const TaskList& list, Chain chain, Residencies& residencies);

}  // namespace spillway
