// Collectives of a step: sharded weights are gathered before their use, gradients reduced once they are complete.
// Not here: shards (sharding.h), who talks to whom.
#pragma once

#include <vector>

#include "memory/passes/task_writer.h"

namespace spillway {

class NetworkTasks {
 public:
  // `to` must outlive this.
  explicit NetworkTasks(TaskWriter& to) : to_(to), gathered_(to.graph.blocks.size()) {}

  // What units take of a block: the weight as it rests, or as it was last gathered.
  int whole_weight(int block) const;
  // Where weights are sharded, those of a unit are gathered beside the unit before it, if anything is read ahead. A block whose
  // last use is no farther back is still there. `direction`: 1 forward, -1 backward.
  void gather_ahead(int unit, int direction);
  // How many units ahead that is: 0, too, where weights are whole.
  int units_ahead() const { return sharding().shards_weights() && to_.choices.ahead > 0 ? 1 : 0; }
  // Where the optimizer's state is sharded and weights are whole, each rank has updated its part of them.
  void gather_updated(int block, TurnSet when, int phase);
  void reduce_gradient(int block);
  // Of words that every rank has a sum of its own of.
  void reduce_control(int resident, Bytes bytes);

 private:
  const Sharding& sharding() const { return to_.choices.sharding; }
  void gather_for(int block, int unit, int phase);

  TaskWriter& to_;
  struct Gathered {
    int object = -1;
    int phase = 0;  // of the last use that it is there for
  };
  std::vector<Gathered> gathered_;  // a block whose weights are sharded
};

}  // namespace spillway
