// The optimizer's tasks of a step: gradients that are complete are finished, their norm is taken, and the updates of blocks, in
// pieces, are dealt out among the tasks of compute.
// Not here: rows that are updated apart from their blocks (row_tasks.h), the arithmetic (offload/optimizer_ops.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <vector>

#include "memory/passes/network_tasks.h"
#include "memory/passes/task_writer.h"

namespace spillway {

// A piece of a block's update. It is due in the phase of the unit whose use of the block it goes with. Of a gradient that waited
// that is its first forward, and it is issued behind the tasks of the unit before; in the backward that is its last backward, and
// it is issued behind the tasks of the unit after.
struct UpdatePiece {
  int block;
  std::int64_t begin, end;
  TurnSet when;
  int due;
};
using UpdateQueue = std::deque<UpdatePiece>;

class UpdateTasks {
 public:
  // Both must outlive this.
  UpdateTasks(TaskWriter& to, NetworkTasks& network)
      : to_(to), network_(network), norm_words_(norm_words(to.graph, to.choices)), queued_(to.graph.blocks.size(), 0) {}

  // Of the step before. Forward units run in order, one phase each: each block's update is due with the first unit that uses it.
  // Where a lookup has its rows without the block, that is the head that shares it, or at last the last unit.
  void queue_waiting();
  // All pieces of a block's update. queue_lookup: of one that is only looked up, whose rows do not wait for it.
  void queue(int block, TurnSet when, int due) { queue_in(due_, block, when, due); }
  void queue_lookup(int block, TurnSet when, int due) { queue_in(lookups_, block, when, due); }
  // What is due by a phase.
  void issue_due(int due_by);
  void issue_all_but_lookups();
  // All lookups, and so much of the rest that no block that is looked up is left.
  void issue_looked_up();

  // Else they are issued together, when their block's are due: what is least in the device's memory at a time.
  bool are_dealt_out() const { return to_.choices.ahead > 0; }
  // Pieces to issue after each of a unit's tasks so that what is due up to a phase is through with the last of them, at an even
  // pace: updates and their moves then run beside compute, and what compute reads is not stuck behind a burst of them.
  struct Quota {
    int due_by;
    std::size_t pieces, lookups;
  };
  Quota quota(int due_by, int tasks) const;
  void issue(const Quota& quota);

  // Adds up what a block's users left, over ranks, too, and finishes the sum, but where its update does.
  void complete_gradient(int block);
  void norm();

  // For tasks of others that apply gradients or square them.
  void read_verdict(Task& task);
  void write_squares(Task& task, int block);

 private:
  static constexpr int kAnyPhase = std::numeric_limits<int>::max();
  void queue_in(UpdateQueue& queue, int block, TurnSet when, int due);
  // Up to `most` queued pieces that are due by a phase.
  void issue(UpdateQueue& queue, std::size_t most, int due_by);
  void update(const UpdatePiece& piece);
  void finish_gradient(int block);
  void use_norm_words(Task& task, Role role, Access access, std::int64_t begin, std::int64_t end);
  const ParameterBlock& block_of(int block) const { return to_.graph.blocks[static_cast<std::size_t>(block)]; }

  TaskWriter& to_;
  NetworkTasks& network_;
  const std::vector<std::int64_t> norm_words_;  // where a block's begin; at last the open nodes
  UpdateQueue due_;                             // in the order in which they are
  UpdateQueue lookups_;                         // of blocks that are looked up, where nothing else waits for them
  std::size_t lookups_owed_ = 0;                // pieces of these that were to be issued by now, less those that were
  std::vector<char> queued_;                    // blocks whose update has been
};

}  // namespace spillway
