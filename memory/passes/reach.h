// How far before its use something is read, and how long after it a buffer is kept from the next user: the one rule for reading
// ahead and writing behind, in the bytes that move meanwhile (Choices::ahead).
// Not here: where objects are and when (residency.h), the operations that move them (moves.h).
#pragma once

#include <vector>

#include "memory/passes/tasks.h"

namespace spillway {

struct Reach {
  std::vector<int> ahead;   // a task: the first one before which what it wants may be fetched
  std::vector<int> phase;   // the first one of its phase of compute, whose tasks want their unit's weights together
  std::vector<int> behind;  // the last one through which its buffers stay reserved, where another lane still uses them
};

// A fetch for a task is issued so early that what the tasks from there on take before it is no more than `ahead` bytes: that much
// is on its way for others first. Buffers are kept for the tasks behind it that leave a quarter of that: writes keep up, or
// nothing does. Arrays of a block count wherever they rest, since what does not move takes time, too; other objects count where
// they move. With 0 nothing is fetched before the task that wants it.
Reach reach_of(const TaskList& list, Bytes ahead);

}  // namespace spillway
