// The pass from tasks and where their objects are to a program: its operations in issue order, and its buffers with lifetimes.
// What an object's residencies fetch and save becomes operations on the lanes of the links that it crosses.
// Not here: when objects are where (residency.h), offsets (packing.h), waits (waits.h).
#pragma once

#include <vector>

#include "memory/passes/residency.h"

namespace spillway {

struct Issued {
  Program program;
  std::vector<int> last_op_of;  // a task: the last of the operations that were issued with it
};
Issued issue(const Plan& plan, const TaskList& list, const Residencies& residencies);

// As an object is staged and moved.
inline Bytes staged_bytes(const Object& object) { return round_up(object.bytes, kExtentAlignment); }

// Which of a tier's buffers are packed apart (Buffer::apart), an answer for each object.
class Apartness {
 public:
  explicit Apartness(const TaskList& list);
  bool is_computed_with(int object) const { return computed_with_[static_cast<std::size_t>(object)] != 0; }
  bool is_apart(const Residency& residency) const;

 private:
  const TaskList& list_;
  std::vector<char> computed_with_;  // a task of the compute lane uses it
};

// Moves fetches of what compute does not touch to where the device has room for them first, up to so many bytes of it taken, in
// the order in which they are wanted. `without`: the program with all fetches where they are.
void fetch_early(Residencies& residencies, const Plan& plan, const TaskList& list, const Issued& without, Bytes early_room);

}  // namespace spillway
