// The compiled training step: its choices, its programs, and a fixed place for every byte on every tier.
// The planner makes it, the simulator predicts it, the executor runs it; a Plan is data and does nothing by itself.
// Not here: how it is found (search/planner.h) or built (passes/schedule.h), what the operations compute (models/).
//
// Legend: V vocabulary, n tokens of a micro-batch.
#pragma once

#include <algorithm>
#include <vector>

#include "memory/base/types.h"
#include "memory/plan/block_state.h"
#include "memory/plan/choices.h"
#include "memory/plan/control_words.h"
#include "memory/plan/program.h"

namespace spillway {

// The resident buffers of a block, as indices into Plan::resident.
struct RestingArray : StateArray {
  int buffer = -1;
};
struct BlockBuffers {
  std::vector<RestingArray> state;  // all arrays of the block's list; in a plan that only evaluates, the weight
  int waiting_gradient = -1;        // -1: the gradient lives within a step
  // [users of the block] the gradient sum of each, from turn to turn; empty where a step is one turn. Where gradients are neither
  // rounded nor sharded, the first is the waiting gradient itself, if there is one.
  std::vector<int> sums;

  const RestingArray& weight() const { return state.front(); }
  // Null where there is none.
  const RestingArray* find(StateKind kind) const {
    const auto found = std::ranges::find(state, kind, &RestingArray::kind);
    return found == state.end() ? nullptr : &*found;
  }
};

struct Plan {
  Choices choices;
  std::vector<Buffer> resident;
  std::vector<BlockBuffers> blocks;
  // Buffers of control words, resident on the device tier.
  int loss_buffer = -1;                   // MicroBatchWords [micro_batches]; a double to wait for the loss by (control_words.h)
  int norm_buffer = -1;                   // double: sums of squares, as norm_words() says
  int ranks_loss_buffer = -1;             // MicroBatchWords [ranks, micro_batches], gathered; -1: one rank
  int ranks_norm_buffer = -1;             // double [group, norm_words()], gathered; -1: no rank has a part of a block
  int factor_buffer = -1;                 // double [2]: global norm, clip factor
  int token_buffer = -1;                  // int32 [2, 2, micro_batches, n]: inputs and targets of this step and the next
  int constant_buffer = -1;               // UnitGraph::constant_bytes; -1 where there are none
  int logits_buffer = -1;                 // float [V]: the logits of one row; -1 where nobody asks for them
  std::vector<int> value_buffer;          // [values of the graph] its resident buffer where it lasts, else -1
  Program step;                           // one turn of a training step
  Program evaluate;                       // forward of one micro-batch; its units are those of the graph with a tiled head
  By<Tier, Bytes> peak;                   // exact bytes of each tier's arena or store
  By<Tier, By<Category, Bytes>> at_rest;  // of `peak`, by category at the moment of the peak
};

const Buffer& buffer_of(const Plan& plan, const Program& program, int index);

// The operation, and the turn, of one of a timeline's spans.
struct OpInTurn {
  const Op& op;
  int turn = 0;
};
inline OpInTurn op_of_span(const Plan& plan, std::size_t span) {
  const std::size_t ops = plan.step.ops.size();
  return {plan.step.ops[span % ops], shown_turn(static_cast<int>(span / ops), turns_of(plan.choices))};
}

// Commits a step, on average.
constexpr double share_of_commits(const Choices& choices, const OpHead& commit) {
  if (choices.durable_every < kSeldom) return 1 / static_cast<double>(choices.durable_every);
  return commit.bytes > 0 ? 0 : 1;
}
// Average bytes that an operation moves in a step; a step has a share of the copies of a commit.
inline double bytes_a_step(const Choices& choices, const OpHead& op) {
  return static_cast<double>(op.bytes) * (op.kind == OpKind::commit ? share_of_commits(choices, op) : 1);
}

}  // namespace spillway
