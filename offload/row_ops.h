// The operations of the update lane on single rows: those that lookups take ahead of the update of their block, and those whose
// gradients are kept apart from it.
// Not here: which rows are where on NVMe (fetched_rows.h), whole blocks (optimizer_ops.h).
//
// Legend: n rows (tokens) of a micro-batch, N of a step, V vocabulary, H elements of a row.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "memory/plan.h"
#include "offload/bound_program.h"
#include "offload/fetched_rows.h"
#include "offload/optimizer_ops.h"

namespace spillway {

// The rows that the step before touched, by token, with their whole gradients as they wait for the update.
class WaitingRows {
 public:
  // As the operands of an update_rows or update operation from the place-th value on have them; none where there are none.
  WaitingRows(const BoundOp& op, std::size_t place, Bytes row_bytes);
  std::span<const TouchedRow> between(std::int64_t first_token, std::int64_t end_token) const;
  const std::byte* gradient(const TouchedRow& row) const { return gradients_ + row.place * row_bytes_; }
  const std::byte* find(std::int32_t token) const;  // null where the step did not touch it

 private:
  std::span<const TouchedRow> touched_;
  const std::byte* gradients_ = nullptr;
  Bytes row_bytes_ = 0;
};

class RowOps {
 public:
  // `optimizer` must outlive this.
  RowOps(const UnitGraph& graph, const Choices& choices, const OptimizerOps& optimizer);

  // The tokens [n] of a micro-batch of the step in `slot`, in their order; before anything of the step runs.
  void note_tokens(int slot, int micro_batch, std::span<const std::int32_t> tokens);
  // The weights [n,H] of fetched rows: as they are, or as the update that waits will leave them.
  void copy_rows(const BoundOp& op, std::span<const std::int32_t> tokens) const;
  void update_rows(const BoundOp& op, std::span<const std::int32_t> tokens, const UpdateSettings& settings) const;
  // Of a block's gradient, complete but for what lookups add: the rows that the step touches, and all rows' sums of squares.
  void keep_apart(const BoundOp& op, int slot) const;
  void add_rows(const BoundOp& op, int slot) const;
  // Adds both, keeps the sums for the next step and completes the blocks' sums of squares in `sums` [pieces of all blocks]. False
  // where one is not finite.
  bool finish_rows(const BoundOp& op, int slot, double* sums);

 private:
  struct Place {
    std::int32_t token, first;  // the first place with this token
  };
  // Sums of squares of `rows` rows of a gradient as they wait for their update: rounded first in compact form.
  void round_and_square(std::int64_t rows, const float* gradient, std::byte* rounded, double* squares) const;
  const Place* places(int slot) const { return places_[static_cast<std::size_t>(slot)].data(); }

  const UnitGraph& graph_;
  const Choices& choices_;
  const OptimizerOps& optimizer_;
  const FetchedRows rows_;
  std::array<std::vector<Place>, 2> places_;  // [N] by slot; of a step that is under way
  std::vector<std::int32_t> first_place_;     // [V]: of a token in the step whose tokens are being noted
  std::vector<double> row_sums_;              // [V]
};

}  // namespace spillway
