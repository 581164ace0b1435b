// Rows of looked-up blocks that are fetched from NVMe ahead of the forward that takes them: where the row of a token rests, and
// where it lies in what was read of it.
// Not here: when rows are fetched (memory/passes/task_list.h), the moves themselves (nvme_lane.h), their update (row_ops.h).
//
// Legend: n rows (tokens) of a micro-batch.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "memory/plan.h"
#include "nvme/store_channel.h"

namespace spillway {

// The row of a token: in which block, from which element on.
struct FetchedRow {
  int block = 0;
  std::int64_t element = 0;
};

class FetchedRows {
 public:
  explicit FetchedRows(const UnitGraph& graph);

  std::int64_t row_elements() const { return row_elements_; }
  // What holds for all tokens is the same in each.
  const RowLookup& any_lookup() const { return tables_.front().lookup; }
  int any_block() const { return tables_.front().block; }
  std::int64_t rows() const;  // of all tables
  FetchedRow row_of(std::int32_t token) const;
  const RowLookup& lookup_of(int block) const;
  // Where the read for a row of an array with `each` bytes an element begins in the array: a multiple of kExtentAlignment, and
  // so far from the array's end that row_window() bytes lie before it.
  Bytes read_begin(const FetchedRow& row, Bytes each) const;
  Bytes read_bytes(Bytes each) const { return row_window(row_elements_ * each); }
  // Where the row begins in what was read.
  Bytes within(const FetchedRow& row, Bytes each) const { return row.element * each - read_begin(row, each); }

 private:
  struct Table {
    RowLookup lookup;
    int block = 0;
  };
  const UnitGraph& graph_;
  std::vector<Table> tables_;  // by first token
  std::int64_t row_elements_ = 0;
};

// A move of rows with its addresses: of each array a window for each token of its strip, in the order of
// the tokens.
class BoundRows {
 public:
  BoundRows(const Plan& plan, const UnitGraph& graph, const Op& op, std::byte* device);

  // What to move for these tokens [strip, n], of state in slot `slot` where it has two; valid until the next call.
  std::span<const IoSegment> segments(std::span<const std::int32_t> tokens, int slot);

 private:
  struct Array {
    Bytes each = 0;                           // bytes an element
    std::byte* memory = nullptr;              // [n, read_bytes(each)]
    std::vector<std::array<Bytes, 2>> begin;  // [blocks], by slot; of blocks that are not looked up unused
  };
  FetchedRows rows_;
  std::vector<Array> arrays_;
  std::vector<IoSegment> segments_;
};

}  // namespace spillway
