// The rule for reading ahead and writing behind, in bytes that move meanwhile (Choices::ahead): how far before its use an object
// is read, and how long after its last use a buffer is kept from the next user.
// Not here: where objects are and when (residency.h), the operations that move them (moves.h).
#pragma once

#include <vector>

#include "memory/passes/tasks.h"

namespace spillway {

struct Reach {
  std::vector<int> ahead;  // [tasks] the first task before which the objects that this one wants may be fetched
  std::vector<int> unit;   // [tasks] the same for the weights of its unit, which the tasks of a phase of compute want together
  // The last task through which a buffer stays reserved behind `task`, when `bytes` of it are still to be written; 0: it is read.
  int behind(int task, Bytes bytes) const;

  std::vector<Bytes> left;  // [tasks] bytes that all tasks up to this one leave to be written
  Bytes kept = 0;           // bytes that may be left before a buffer has another user; a large buffer's own bytes may be more
};

// A fetch for a task is issued so early that the tasks from there to this one take at most `ahead` bytes: so much may be on its
// way for them first. Updates between two units take so many bytes that one unit would be fetched only after the other. So
// compute's objects are fetched two strips, and its weights two units, before their use, as long as compute alone takes at most
// `ahead` bytes from there on. A buffer stays reserved until the tasks behind its last use leave half of `ahead` to be written:
// writes keep up, or nothing does. A large object takes its own time: its buffer stays reserved until they leave twice its bytes.
// Arrays of a block count wherever they rest, since one that does not move takes time, too; other objects count where they move.
// With 0 nothing is fetched before the task that wants it.
Reach reach_of(const TaskList& list, Bytes ahead);

}  // namespace spillway
