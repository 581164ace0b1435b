// The pass that turns tasks and the residencies of their objects into a program: operations in issue order, and buffers with
// lifetimes. Fetches and saves of residencies become moves, operations on the lanes of the links that the objects cross.
// Not here: when objects are where (residency.h), offsets (packing.h), waits (waits.h).
#pragma once

#include "memory/passes/residency.h"

namespace spillway {

Program issue(const Plan& plan, const TaskList& list, const Residencies& residencies);

}  // namespace spillway
