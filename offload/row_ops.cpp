#include "offload/row_ops.h"

#include <algorithm>
#include <cmath>

#include "memory/bfloat16.h"
#include "models/ops.h"

namespace spillway {

WaitingRows::WaitingRows(const BoundOp& op, std::size_t place, Bytes row_bytes) : row_bytes_(row_bytes) {
  if (op.values.size() <= place) return;
  gradients_ = op.values[place];
  const auto* rows = reinterpret_cast<const TouchedRow*>(op.values[place + 1]);
  touched_ = {rows + 1, static_cast<std::size_t>(rows->place)};
}

std::span<const TouchedRow> WaitingRows::between(std::int64_t first_token, std::int64_t end_token) const {
  const auto first = std::ranges::lower_bound(touched_, first_token, {}, &TouchedRow::token);
  return {first, std::ranges::lower_bound(first, touched_.end(), end_token, {}, &TouchedRow::token)};
}

const std::byte* WaitingRows::find(std::int32_t token) const {
  const std::span<const TouchedRow> found = between(token, std::int64_t{token} + 1);
  return found.empty() ? nullptr : gradient(found.front());
}

RowOps::RowOps(const UnitGraph& graph, const Choices& choices, const OptimizerOps& optimizer)
    : graph_(graph), choices_(choices), optimizer_(optimizer), rows_(graph) {
  if (!choices.fetches_rows) return;
  for (auto& places : places_) places.resize(static_cast<std::size_t>(choices.micro_batches * graph.rows));
  first_place_.assign(static_cast<std::size_t>(rows_.rows()), -1);
  row_sums_.resize(static_cast<std::size_t>(rows_.rows()));
}

void RowOps::note_tokens(int slot, int micro_batch, std::span<const std::int32_t> tokens) {
  auto& places = places_[static_cast<std::size_t>(slot)];
  if (places.empty()) return;
  auto place = static_cast<std::int32_t>(micro_batch * graph_.rows);
  for (const std::int32_t token : tokens) {
    std::int32_t& first = first_place_[static_cast<std::size_t>(token)];
    if (first < 0) first = place;
    places[static_cast<std::size_t>(place++)] = {token, first};
  }
  if (place == static_cast<std::int32_t>(places.size())) {
    for (const Place& noted : places) first_place_[static_cast<std::size_t>(noted.token)] = -1;
  }
}

namespace {

// Of the i-th row of what was fetched of an array with `each` bytes an element.
std::byte* fetched_row(std::byte* windows, std::size_t i, const FetchedRows& rows, const FetchedRow& row, Bytes each) {
  return each == 0 ? nullptr : windows + static_cast<Bytes>(i) * rows.read_bytes(each) + rows.within(row, each);
}

}  // namespace

void RowOps::copy_rows(const BoundOp& op, std::span<const std::int32_t> tokens) const {
  const Bytes each = bytes_per_element(choices_.form, StateKind::weight), bytes = rows_.row_elements() * each;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const std::byte* row = fetched_row(op.state[static_cast<int>(StateKind::weight)], i, rows_, rows_.row_of(tokens[i]), each);
    std::copy_n(row, bytes, op.values[0] + static_cast<Bytes>(i) * bytes);
  }
}

void RowOps::update_rows(const BoundOp& op, std::span<const std::int32_t> tokens, const UpdateSettings& settings) const {
  const Bytes gradient_bytes = gradient_bytes_per_element(choices_.form);
  const Bytes weight_bytes = rows_.row_elements() * bytes_per_element(choices_.form, StateKind::weight);
  const WaitingRows waiting(op, 1, rows_.row_elements() * gradient_bytes);
  optimizer_.pool().parallel_for(std::ssize(tokens), [&](std::int64_t place, int) {
    const auto i = static_cast<std::size_t>(place);
    const FetchedRow row = rows_.row_of(tokens[i]);
    OptimizerOps::Elements at;
    at.gradient = waiting.find(tokens[i]);
    if (at.gradient == nullptr) at.gradient = fetched_row(op.gradient[0], i, rows_, row, gradient_bytes);
    for (int kind = 0; kind < kStateKinds; ++kind)
      at.state[kind] = fetched_row(op.state[kind], i, rows_, row, bytes_per_element(choices_.form, static_cast<StateKind>(kind)));
    at.weight = op.values[0] + static_cast<Bytes>(i) * weight_bytes;
    optimizer_.step(settings, row.block, row.element, rows_.row_elements(), at);
  });
}

void RowOps::keep_apart(const BoundOp& op, int slot) const {
  const std::int64_t H = rows_.row_elements();
  const int block = op.op->block;
  const RowLookup& lookup = rows_.lookup_of(block);
  const auto* gradient = reinterpret_cast<const float*>(op.gradient[0]);
  const auto touches = [&](const Place& place, int index) {
    return place.first == index && place.token >= lookup.first && place.token < lookup.first + lookup.rows;
  };
  const int count = static_cast<int>(choices_.micro_batches * graph_.rows);
  for (int i = 0; i < count; ++i) {
    const Place& place = places(slot)[i];
    if (touches(place, i)) std::copy_n(gradient + (place.token - lookup.first) * H, H, reinterpret_cast<float*>(op.values[0]) + i * H);
  }
  round_and_square(lookup.rows, gradient, op.gradient[1], reinterpret_cast<double*>(op.values[1]));
}

void RowOps::round_and_square(std::int64_t rows, const float* gradient, std::byte* rounded, double* squares) const {
  const std::int64_t H = rows_.row_elements();
  if (choices_.form == StateForm::compact) {
    auto* waiting = reinterpret_cast<BFloat16*>(rounded);
    ops::cast_from_float(optimizer_.pool(), rows * H, gradient, waiting);
    ops::row_squares(optimizer_.pool(), rows, H, waiting, squares);
  } else {
    ops::row_squares(optimizer_.pool(), rows, H, gradient, squares);
  }
}

namespace {

// sums[first place of the token] += dx [n,H], place after place, as the dense sum would: it begins with 0.
template <typename E>
void add_places(const ThreadPool& pool, std::int64_t n, std::int64_t H, std::int64_t begin, const auto* places, const E* dx, float* sums) {
  constexpr std::int64_t kStrip = 256;
  pool.parallel_for((H + kStrip - 1) / kStrip, [&](std::int64_t strip, int) {
    const std::int64_t column = strip * kStrip, end = std::min(H, column + kStrip);
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int64_t first = places[begin + i].first;
      float* sum = sums + first * H;
      const bool begins = first == begin + i;
      for (std::int64_t c = column; c < end; ++c) sum[c] = (begins ? 0.0f : sum[c]) + to_float(dx[i * H + c]);
    }
  });
}

}  // namespace

void RowOps::add_rows(const BoundOp& op, int slot) const {
  const std::int64_t H = rows_.row_elements(), begin = op.op->micro_batch * graph_.rows;
  auto* sums = reinterpret_cast<float*>(op.gradient[0]);
  if (graph_.dtype == DType::float32) {
    add_places(optimizer_.pool(), graph_.rows, H, begin, places(slot), reinterpret_cast<const float*>(op.values[0]), sums);
  } else {
    add_places(optimizer_.pool(), graph_.rows, H, begin, places(slot), reinterpret_cast<const BFloat16*>(op.values[0]), sums);
  }
}

bool RowOps::finish_rows(const BoundOp& op, int slot, double* sums) {
  const std::int64_t H = rows_.row_elements();
  auto* whole = reinterpret_cast<float*>(op.values[0]);
  const auto* added = reinterpret_cast<const float*>(op.values[1]);
  auto* touched = reinterpret_cast<TouchedRow*>(op.values[3]);
  auto* squares = reinterpret_cast<double*>(op.values[4]);
  const int count = static_cast<int>(choices_.micro_batches * graph_.rows);
  int rows = 0;
  for (int i = 0; i < count; ++i) {
    const Place& place = places(slot)[i];
    if (place.first != i) continue;
    float* row = whole + i * H;
    ops::accumulate(optimizer_.pool(), H, added + i * H, row);
    std::byte* const waiting = op.values[2] + i * H * gradient_bytes_per_element(choices_.form);
    round_and_square(1, row, waiting, &squares[place.token]);
    if (choices_.form != StateForm::compact) std::copy_n(row, H, reinterpret_cast<float*>(waiting));
    touched[++rows] = {place.token, i};
  }
  touched[0] = {0, rows};
  std::sort(touched + 1, touched + 1 + rows, [](const TouchedRow& a, const TouchedRow& b) { return a.token < b.token; });
  bool finite = true;
  std::copy_n(squares, row_sums_.size(), row_sums_.data());
  for (const Unit& unit : graph_.units) {
    if (unit.lookup.rows == 0) continue;
    double& sum = sums[optimizer_.first_piece(unit.blocks.front())];
    sum = ops::tree_sum({row_sums_.data() + unit.lookup.first, static_cast<std::size_t>(unit.lookup.rows)});
    finite &= std::isfinite(sum);
  }
  return finite;
}

}  // namespace spillway
