// The optimizer's tasks of a step: they finish complete gradients, take their norm, and update blocks in pieces that are dealt
// out among the tasks of compute.
// Not here: the arithmetic (offload/optimizer_ops.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <vector>

#include "memory/passes/network_tasks.h"
#include "memory/passes/task_writer.h"

namespace spillway {

// A piece of a block's update: elements [begin, end). It is due in the phase of the unit whose use of the block it goes with. For
// a gradient that waited that is the block's first forward, and the piece is issued behind the tasks of the unit before; in the
// backward that is the block's last backward, and the piece is issued behind the tasks of the next unit in the backward.
struct UpdatePiece {
  int block;
  std::int64_t begin, end;
  TurnSet when;
  int due;
};

class UpdateTasks {
 public:
  // Both must outlive this.
  UpdateTasks(TaskWriter& to, NetworkTasks& network)
      : to_(to), network_(network), norm_words_(norm_words(to.graph, to.choices)), queued_(to.graph.blocks.size(), 0) {}

  // Queues the updates that the step before left. Forward units run in order, one phase each: a block's update is due with the
  // first unit that uses it.
  void queue_waiting();
  // Queues all pieces of a block's update.
  void queue(int block, TurnSet when, int due);
  // Issues the queued pieces that are due by a phase.
  void issue_due(int due_by) { issue({due_by, due_.size()}); }
  void issue_all() { issue_due(std::numeric_limits<int>::max()); }

  // True when pieces are dealt out among tasks. Else all pieces of a block are issued together when they are due, which needs the
  // least memory of the device at a time.
  bool are_dealt_out() const { return to_.choices.ahead > 0; }
  // Pieces to issue after each of a unit's tasks, so that all pieces due by a phase are issued with the last task, at an even
  // pace: updates and their moves then run beside compute, and compute's reads are not stuck behind a burst of them.
  struct Quota {
    int due_by;
    std::size_t pieces;
  };
  Quota quota(int due_by, int tasks) const;
  void issue(const Quota& quota);

  // Adds up the sums that a block's users left, over ranks, too, and finishes the total, except where its update does that.
  void complete_gradient(int block);
  void norm();

 private:
  void update(const UpdatePiece& piece);
  void finish_gradient(int block);
  void read_verdict(Task& task);
  void write_squares(Task& task, int block);
  void use_norm_words(Task& task, Role role, Access access, std::int64_t begin, std::int64_t end);
  const ParameterBlock& block_of(int block) const { return to_.graph.blocks[static_cast<std::size_t>(block)]; }

  TaskWriter& to_;
  NetworkTasks& network_;
  const std::vector<std::int64_t> norm_words_;  // [blocks + 1] norm_words(): begin of each block's words; last: of the open nodes
  std::deque<UpdatePiece> due_;                 // queued pieces, in the order in which they are due
  std::vector<char> queued_;                    // [blocks] 1: the block's update was queued
};

}  // namespace spillway
