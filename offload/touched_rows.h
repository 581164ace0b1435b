// The rows of looked-up blocks that a step's tokens touch, by token, with their whole gradients where these are at hand.
// Not here: what is done with them (row_ops.h, optimizer_ops.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "memory/plan.h"
#include "offload/bound_program.h"

namespace spillway {

class TouchedRows {
 public:
  TouchedRows() = default;
  // By ascending token; `gradients` [N, row_bytes] are as they wait for the update, each at its row's
  // place; null where they follow.
  TouchedRows(std::span<const TouchedRow> rows, const std::byte* gradients, Bytes row_bytes)
      : rows_(rows), gradients_(gradients), row_bytes_(row_bytes) {}
  // Those that the step before left, as an operation takes them.
  static TouchedRows waiting(const BoundOperands& of, Bytes row_bytes) {
    const auto* rows = of.get<const TouchedRow>(Role::touched);
    return {{rows + 1, static_cast<std::size_t>(rows->place)}, of.get(Role::touched_gradients), row_bytes};
  }

  bool empty() const { return rows_.empty(); }
  std::span<const TouchedRow> between(std::int64_t first_token, std::int64_t end_token) const;
  bool have_gradients() const { return gradients_ != nullptr; }
  const std::byte* gradient(const TouchedRow& row) const { return gradients_ + row.place * row_bytes_; }
  const std::byte* find(std::int32_t token) const;  // null where it is not among them

 private:
  std::span<const TouchedRow> rows_;
  const std::byte* gradients_ = nullptr;
  Bytes row_bytes_ = 0;
};

}  // namespace spillway
