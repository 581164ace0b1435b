// Reads what updates want early, into room that the program leaves: as activations go, towards the end of a backward, there is
// room for state whose update nothing is computed behind. Within one run's program: what is
// read for updates that wait for the next run is in that run's.
// Not here: how far ahead all is read at least (reach.h).
#pragma once

#include "memory/passes/residency.h"
#include "memory/passes/tasks.h"

namespace spillway {

// Moves the fetches from homes of what compute does not touch ahead, past tasks at which their tier has, with them, no more than
// most of what it has at its fullest: the rest is lost between buffers. None comes ahead of what is wanted before it: its lane
// brings one after the other.
void read_early(const TaskList& list, Chain chain, Residencies& residencies);

}  // namespace spillway
