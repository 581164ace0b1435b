// How far before its use something is read, and how long after it a buffer is kept from the next user: the one rule for reading
// ahead and writing behind, in the bytes that move meanwhile (Choices::ahead).
// Not here: where objects are and when (residency.h), the operations that move them (moves.h).
#pragma once

#include <vector>

#include "memory/passes/tasks.h"

namespace spillway {

struct Reach {
  std::vector<int> ahead;  // a task: the first one before which what it wants may be fetched
  std::vector<int> unit;   // the same of its unit's weights, which the tasks of a phase of compute want together
  // The last task through which a buffer stays reserved behind this one, of which so many bytes are still written. 0: it is read.
  int behind(int task, Bytes bytes) const;

  std::vector<Bytes> left;  // by the tasks up to this one
  Bytes kept = 0;           // what may be left before a buffer has another user, a large one's own bytes aside
};

// A fetch for a task is issued so early that what the tasks from there on take before it is no more than `ahead` bytes: that much
// is on its way for others first. Updates between two units take so much that these would be fetched for one after the other:
// what compute wants is fetched for before the two before it, strips before strips and units before units, as far as what compute
// alone takes from there on is no more than `ahead`. Buffers are kept for the tasks behind it that leave half of that: writes
// keep up, or nothing does; but a large object takes its own time, and what leaves twice as much as it does comes before its
// buffer is another's. Arrays of a block count wherever they rest, since what does not move takes time, too; other objects count
// where they move. With 0 nothing is fetched before the task that wants it.
Reach reach_of(const TaskList& list, Bytes ahead);

}  // namespace spillway
