// The optimizer's operations: they finish gradients, take their norm and update state, on the update lane or the device's
// (memory/plan/choices.h: lane_of_gradients, lane_of_updates).
// Not here: AdamW's arithmetic (host_adamw.h), squares (block_squares.h), when they run (memory/passes/update_tasks.h).
//
// Memory beside the plan: 8 bytes for each 64 Ki elements of the largest block. In Llama 3.1 405B that is an attention block of
// 570 M elements: 70 KB.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "memory/base/parallel.h"
#include "memory/plan/plan.h"
#include "offload/bound_program.h"
#include "offload/host_adamw.h"
#include "offload/update_hashes.h"

namespace spillway {

class OptimizerOps {
 public:
  OptimizerOps(const UnitGraph& graph, const Choices& choices, int threads);

  // first += second, over the pieces of the block.
  void add_gradients(const BoundOp& op) const;
  // Writes the block's sum of squares into its word (norm_words()) of `words`, Plan::norm_buffer; where ranks have parts of
  // blocks, the sums of the nodes that this rank's part consists of. In compact form rounds the gradient to bf16 first and sums
  // the rounded one. False where a sum is not finite.
  bool finish_gradient(const BoundOp& op, double* words);
  // sqrt of the sum over blocks, one after the other in the order of the graph. That order is the model's, like the order within
  // a block (memory/plan/square_tree.h): so the norm depends neither on the plan nor on threads, nor on how ranks divide blocks.
  // `words`: Plan::norm_buffer, or Plan::ranks_norm_buffer where ranks have parts.
  double norm(const double* words);
  // The last block of the graph whose sum of squares is not finite; -1: there is none.
  int block_not_finite(const double* words);
  // AdamW on a range of a block. `hashes`: hashes of the state that have begun, where it is durable; else null.
  void update(const BoundOp& op, const AdamWSettings& settings, UpdateHashes* hashes = nullptr) const;
  // Takes the hashes of state that an update of a skipped step leaves as it is.
  void hash_as_it_is(const BoundOp& op, UpdateHashes& hashes) const;
  // Squares and updates, where squares_with_update(). A block's updates come in order, with none of another block between them:
  // the part of its tree that is complete so far goes from one to the next in the open nodes of `words`. The last update writes
  // the sum that finish_gradient() would. False where it is not finite.
  bool square_and_update(const BoundOp& op, const AdamWSettings& settings, double* words);

 private:
  template <typename Visit>
  void for_each_chunk(const BoundOp& op, UpdateHashes* hashes, const Visit& visit) const;
  void update_elements(const BoundOp& op, const AdamWSettings& settings, std::int64_t first, std::int64_t last) const;
  double sum_of_block(const double* words, int block);

  const UnitGraph& graph_;
  const StateForm form_;
  const Sharding sharding_;
  const std::vector<std::int64_t> norm_words_;  // norm_words()
  // A pool of its own: pieces of work here are short and moves of state wait for them, so they must not queue behind a matrix
  // product.
  const ThreadPool pool_;
  std::vector<double> node_sums_;  // sums of the nodes that the tasks of an operation have squared
  SquareTree tree_;                // tree of the block whose squares are being summed
};

}  // namespace spillway
