// The collectives of a step: sharded weights are gathered before their use, gradients are reduced once they are complete.
// Not here: shards (sharding.h), who talks to whom (collectives/communicator.h).
#pragma once

#include <vector>

#include "memory/passes/task_writer.h"

namespace spillway {

class NetworkTasks {
 public:
  // `to` must outlive this.
  explicit NetworkTasks(TaskWriter& to) : to_(to), gathered_(to.graph.blocks.size()) {}

  // The object that units read a block's weight from: the weight as it rests, or as it was last gathered.
  int whole_weight(int block) const;
  // Gathers sharded weights for a unit and, if anything is read ahead, those for the next unit beside it. A block that a unit
  // used so recently is still there and is not gathered again. `direction`: 1 forward, -1 backward.
  void gather_ahead(int unit, int direction);
  // Units ahead for which weights are gathered: 0 or 1; also 0 where weights are whole.
  int units_ahead() const { return sharding().shards_weights() && to_.choices.ahead > 0 ? 1 : 0; }
  // Gathers a block's weight behind its update, where optimizer state is sharded and weights are whole: each rank has updated its
  // part of the weight.
  void gather_updated(int block, TurnSet when, int phase);
  void reduce_gradient(int block);
  // Gathers control words, which every rank then adds up in the same order: `bytes` of the resident buffer `own` from each of
  // `ranks` ranks, in their order, to `all`.
  void gather_words(int own, int all, Bytes bytes, int ranks);

 private:
  const Sharding& sharding() const { return to_.choices.sharding; }
  void gather_for(int block, int unit, int phase);

  TaskWriter& to_;
  struct Gathered {
    int object = -1;
    int phase = 0;  // phase of the last use that it was gathered or kept for
  };
  std::vector<Gathered> gathered_;  // [blocks] where weights are sharded
};

}  // namespace spillway
