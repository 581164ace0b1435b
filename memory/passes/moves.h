// The pass from tasks and where their objects are to a program: its operations in issue order, and its buffers with lifetimes.
// What an object's residencies fetch and save becomes operations on the lanes of the links that it crosses.
// Not here: when objects are where (residency.h), offsets (packing.h), waits (waits.h).
#pragma once

#include "memory/passes/residency.h"

namespace spillway {

Program issue(const Plan& plan, const TaskList& list, const Residencies& residencies);

}  // namespace spillway
