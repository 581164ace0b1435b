// The operations of the update lane on single rows: those that lookups take ahead of the update of their block, and those that a
// step's tokens touch, whose gradients are kept apart from the block's.
// Not here: which rows are where on NVMe (fetched_rows.h), whole blocks (optimizer_ops.h).
//
// Legend: n rows (tokens) of a micro-batch, N of a step, V vocabulary, H elements of a row.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "memory/plan.h"
#include "offload/block_squares.h"
#include "offload/bound_program.h"
#include "offload/fetched_rows.h"
#include "offload/optimizer_ops.h"
#include "offload/touched_rows.h"

namespace spillway {

class RowOps {
 public:
  // `optimizer` must outlive this.
  RowOps(const UnitGraph& graph, const Choices& choices, const OptimizerOps& optimizer);

  // The tokens [N] of the step in `slot`; before anything of the step runs.
  void note_tokens(int slot, std::span<const std::int32_t> tokens);
  // The weights [tokens,H] of fetched rows: as they are, or as the update that waits will leave them.
  void copy_rows(const BoundOp& op, std::span<const std::int32_t> tokens) const;
  void update_rows(const BoundOp& op, std::span<const std::int32_t> tokens, const AdamWSettings& settings) const;
  // Of a block's gradient, complete but for what lookups add: the rows that the step touches, and the sums of squares of all
  // rows' nodes. False where one is not finite.
  bool keep_apart(const BoundOp& op, int slot) const;
  void add_rows(const BoundOp& op, int slot) const;
  // Adds both, rounds the sums as they wait for their update, and leaves the blocks' sums of squares in `norm_words`
  // (Plan::norm_buffer): the very bits that they have where gradients are whole, zeros and all. False where one is not finite.
  bool finish_rows(const BoundOp& op, int slot, double* norm_words) const;
  // The state in the windows [N, window] of the step's tokens. Where windows share bytes, all of them have the updated ones.
  void update_touched(const BoundOp& op, int slot, const AdamWSettings& settings) const;
  // The rows that an update of a block takes apart: with the gradients that waited, or without, for update_touched() to see to.
  TouchedRows waiting(const BoundOp& update) const;
  TouchedRows touched(int slot) const;

 private:
  struct Place {
    std::int32_t token, first;  // the first place with this token
  };
  const std::vector<Place>& places(int slot) const { return places_[static_cast<std::size_t>(slot)]; }
  // By kind, of the i-th row of what was fetched.
  std::array<std::byte*, kStateKinds> rows_of_state(const BoundOperands& of, std::int64_t i, const FetchedRow& row) const;
  void share_windows(std::byte* windows, Bytes each, int slot) const;
  SquaredGradient squared(const float* gradient, std::byte* rounded) const;

  const UnitGraph& graph_;
  const Choices& choices_;
  const OptimizerOps& optimizer_;
  const FetchedRows rows_;
  StateList state_;                                 // of each block that is looked up
  std::array<std::vector<Place>, 2> places_;        // [N] by slot; of a step that is under way
  std::array<std::vector<TouchedRow>, 2> touched_;  // by slot: the first places of its tokens, by token
  std::vector<std::int32_t> first_place_;           // [V]: of a token in the step whose tokens are being noted
  // A row's squares are summed in nodes of so many elements, the same for every row; so many make a row.
  std::int64_t node_ = 0, row_nodes_ = 0;
};

}  // namespace spillway
