#include "offload/row_ops.h"

#include <algorithm>

#include "models/cpu/ops.h"

namespace spillway {

RowOps::RowOps(const UnitGraph& graph, const Choices& choices, const OptimizerOps& optimizer)
    : graph_(graph), choices_(choices), optimizer_(optimizer), rows_(graph) {
  if (!choices.fetches_rows) return;
  const auto tokens = static_cast<std::size_t>(choices.micro_batches * graph.rows);
  for (auto& places : places_) places.resize(tokens);
  for (auto& touched : touched_) touched.reserve(tokens);
  first_place_.assign(static_cast<std::size_t>(rows_.rows()), -1);
  state_ = state_of(graph.blocks[rows_.any_block()], choices.form);
  node_ = row_node(rows_.row_elements());
  row_nodes_ = rows_.row_elements() / node_;
}

void RowOps::note_tokens(int slot, std::span<const std::int32_t> tokens) {
  auto& places = places_[static_cast<std::size_t>(slot)];
  std::int32_t place = 0;
  for (const std::int32_t token : tokens) {
    std::int32_t& first = first_place_[static_cast<std::size_t>(token)];
    if (first < 0) first = place;
    places[static_cast<std::size_t>(place++)] = {token, first};
  }
  auto& touched = touched_[static_cast<std::size_t>(slot)];
  touched.clear();
  for (std::int32_t i = 0; i < place; ++i) {
    const Place& noted = places[static_cast<std::size_t>(i)];
    first_place_[static_cast<std::size_t>(noted.token)] = -1;
    if (noted.first == i) touched.push_back({noted.token, i});
  }
  std::sort(touched.begin(), touched.end(), [](const TouchedRow& a, const TouchedRow& b) { return a.token < b.token; });
}

TouchedRows RowOps::waiting(const BoundOp& update) const {
  return TouchedRows::waiting(update.operands(), rows_.row_elements() * gradient_bytes_per_element(choices_.form));
}

TouchedRows RowOps::touched(int slot) const { return {touched_[static_cast<std::size_t>(slot)], nullptr, 0}; }

namespace {

// Of the i-th row of what was fetched of an array with `each` bytes an element.
std::byte* fetched_row(std::byte* windows, std::int64_t i, const FetchedRows& rows, const FetchedRow& row, Bytes each) {
  return windows + i * rows.read_bytes(each) + rows.within(row, each);
}

}  // namespace

std::array<std::byte*, kStateKinds> RowOps::rows_of_state(const BoundOperands& of, std::int64_t i, const FetchedRow& row) const {
  std::array<std::byte*, kStateKinds> state{};
  for (const StateArray& array : state_) {
    const auto kind = static_cast<std::size_t>(array.kind);
    state[kind] = fetched_row(of.state[kind], i, rows_, row, array.each());
  }
  return state;
}

void RowOps::copy_rows(const BoundOp& op, std::span<const std::int32_t> tokens) const {
  const BoundOperands& of = op.operands();
  const Bytes each = state_.front().each(), bytes = rows_.row_elements() * each;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const std::byte* row = fetched_row(of.state[static_cast<int>(StateKind::weight)], i, rows_, rows_.row_of(tokens[i]), each);
    std::copy_n(row, bytes, of.get(Role::looked_up) + static_cast<Bytes>(i) * bytes);
  }
}

void RowOps::update_rows(const BoundOp& op, std::span<const std::int32_t> tokens, const AdamWSettings& settings) const {
  const BoundOperands& of = op.operands();
  const Bytes gradient_bytes = gradient_bytes_per_element(choices_.form);
  const Bytes weight_bytes = rows_.row_elements() * state_.front().each();
  const TouchedRows waiting = TouchedRows::waiting(of, rows_.row_elements() * gradient_bytes);
  optimizer_.pool().parallel_for(std::ssize(tokens), [&](std::int64_t place, int) {
    const auto i = static_cast<std::size_t>(place);
    const FetchedRow row = rows_.row_of(tokens[i]);
    OptimizerOps::Elements at;
    at.gradient = waiting.find(tokens[i]);
    if (at.gradient == nullptr && of.get(Role::waiting) != nullptr)
      at.gradient = fetched_row(of.get(Role::waiting), i, rows_, row, gradient_bytes);
    at.state = rows_of_state(of, i, row);
    at.weight = of.get(Role::looked_up) + static_cast<Bytes>(i) * weight_bytes;
    optimizer_.step(settings, row.block, row.element, rows_.row_elements(), at);
  });
}

bool RowOps::keep_apart(const BoundOp& op, int slot) const {
  const std::int64_t H = rows_.row_elements();
  const RowLookup& lookup = rows_.lookup_of(op.op->block);
  const auto* gradient = op.operands().get<const float>(Role::sum);
  for (const TouchedRow& row : touched(slot).between(lookup.first, lookup.first + lookup.rows)) {
    std::copy_n(gradient + (row.token - lookup.first) * H, H, op.operands().get<float>(Role::head_gradients) + row.place * H);
  }
  auto* squares = op.operands().get<double>(Role::row_squares);
  const SquaredGradient squared_gradient = squared(gradient, op.operands().get(Role::waiting));
  const std::int64_t elements = lookup.rows * H;
  optimizer_.pool().parallel_for((elements + kSquareTask - 1) / kSquareTask, [&](std::int64_t task, int) {
    const std::int64_t begin = task * kSquareTask;
    square_nodes(std::min(kSquareTask, elements - begin), node_, squared_gradient.from(begin), squares + begin / node_);
  });
  return std::all_of(squares, squares + elements / node_, is_finite_sum);
}

SquaredGradient RowOps::squared(const float* gradient, std::byte* rounded) const {
  return {.exact = gradient, .rounded = choices_.form == StateForm::compact ? reinterpret_cast<BFloat16*>(rounded) : nullptr};
}

namespace {

// sums[first place of the token] += factor * dx [n,H], place after place, as the dense sum would: it begins with 0.
template <typename E>
void add_places(const ThreadPool& pool, std::int64_t n, std::int64_t H, std::int64_t begin, const auto& places, const E* dx,
                const RowLookup& lookup, float* sums) {
  constexpr std::int64_t kStrip = 256;
  pool.parallel_for((H + kStrip - 1) / kStrip, [&](std::int64_t strip, int) {
    const std::int64_t column = strip * kStrip, end = std::min(H, column + kStrip);
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int64_t first = places[static_cast<std::size_t>(begin + i)].first;
      float* sum = sums + first * H;
      const bool begins = first == begin + i;
      const bool is_padding = places[static_cast<std::size_t>(begin + i)].token == lookup.padding;
      const float factor = is_padding ? 0.0f : lookup.factor;
      for (std::int64_t c = column; c < end; ++c) sum[c] = (begins ? 0.0f : sum[c]) + factor * to_float(dx[i * H + c]);
    }
  });
}

}  // namespace

void RowOps::add_rows(const BoundOp& op, int slot) const {
  const std::int64_t H = rows_.row_elements();
  auto* sums = op.operands().get<float>(Role::sum);
  for (int i = 0; i < op.op->strip.count; ++i) {
    const std::byte* gradient = op.operands().get(Role::addend) + i * strip_stride(graph_.rows * H * size_of(graph_.dtype));
    const std::int64_t begin = (op.op->strip.first + i) * graph_.rows;
    if (graph_.dtype == DType::float32) {
      add_places(optimizer_.pool(), graph_.rows, H, begin, places(slot), reinterpret_cast<const float*>(gradient),
                 rows_.any_lookup(), sums);
    } else {
      add_places(optimizer_.pool(), graph_.rows, H, begin, places(slot), reinterpret_cast<const BFloat16*>(gradient),
                 rows_.any_lookup(), sums);
    }
  }
}

bool RowOps::finish_rows(const BoundOp& op, int slot, double* norm_words) const {
  const std::int64_t H = rows_.row_elements();
  const BoundOperands& of = op.operands();
  auto* added = of.get<float>(Role::sum);
  const auto* by_head = of.get<const float>(Role::head_gradients);
  const auto& touched = touched_[static_cast<std::size_t>(slot)];
  // Of all rows where a head adds to them; else of those that the step touches, by token.
  auto* squares = of.get<double>(Role::row_squares);
  const auto squares_of = [&](std::int64_t i) {
    return squares + (by_head != nullptr ? touched[static_cast<std::size_t>(i)].token : i) * row_nodes_;
  };
  optimizer_.pool().parallel_for(std::ssize(touched), [&](std::int64_t i, int) {
    const std::int64_t begin = touched[static_cast<std::size_t>(i)].place * H;
    float* sum = added + begin;
    for (std::int64_t c = 0; by_head != nullptr && c < H; ++c) sum[c] += by_head[begin + c];
    std::byte* const waiting = of.get(Role::touched_gradients) + begin * gradient_bytes_per_element(choices_.form);
    square_nodes(H, node_, squared(sum, waiting), squares_of(i));
    if (choices_.form != StateForm::compact) std::copy_n(sum, H, reinterpret_cast<float*>(waiting));
  });
  if (auto* const kept = of.get<TouchedRow>(Role::touched); kept != nullptr) {
    kept[0] = {0, static_cast<std::int32_t>(touched.size())};
    std::copy(touched.begin(), touched.end(), kept + 1);
  }
  bool finite = true;
  for (const Unit& unit : graph_.units) {
    const RowLookup& lookup = unit.lookup;
    if (lookup.rows == 0) continue;
    double& sum = norm_words[unit.blocks.front()];
    if (by_head != nullptr) {
      sum = ops::tree_sum({squares + lookup.first * row_nodes_, static_cast<std::size_t>(lookup.rows * row_nodes_)});
    } else {
      const auto first_of = [&](std::int64_t token) {
        return std::ranges::lower_bound(touched, token, {}, &TouchedRow::token) - touched.begin();
      };
      sum = sum_of_nodes(
          first_of(lookup.first) * row_nodes_, first_of(lookup.first + lookup.rows) * row_nodes_,
          [&](std::int64_t i) {
            return (touched[static_cast<std::size_t>(i / row_nodes_)].token - lookup.first) * H + i % row_nodes_ * node_;
          },
          [&](std::int64_t i) { return squares[i]; });
    }
    finite &= is_finite_sum(sum);
  }
  return finite;
}

void RowOps::update_touched(const BoundOp& op, int slot, const AdamWSettings& settings) const {
  const BoundOperands& of = op.operands();
  const Bytes row_bytes = rows_.row_elements() * gradient_bytes_per_element(choices_.form);
  const auto& all_touched = touched_[static_cast<std::size_t>(slot)];
  optimizer_.pool().parallel_for(std::ssize(all_touched), [&](std::int64_t i, int) {
    const TouchedRow& touched = all_touched[static_cast<std::size_t>(i)];
    const FetchedRow row = rows_.row_of(touched.token);
    OptimizerOps::Elements at{.gradient = of.get(Role::touched_gradients) + touched.place * row_bytes};
    at.state = rows_of_state(of, touched.place, row);
    at.weight = at.state[static_cast<int>(StateKind::weight)];
    optimizer_.step(settings, row.block, row.element, rows_.row_elements(), at);
  });
  for (const StateArray& array : state_) share_windows(of.state[static_cast<std::size_t>(array.kind)], array.each(), slot);
}

void RowOps::share_windows(std::byte* windows, Bytes each, int slot) const {
  const auto& touched = touched_[static_cast<std::size_t>(slot)];
  const Bytes row_bytes = rows_.row_elements() * each, bytes = rows_.read_bytes(each);
  // The part of row `from`, of its own window, that lies in the window of `to`.
  const auto copy = [&](const TouchedRow& from, const FetchedRow& from_row, const TouchedRow& to, const FetchedRow& to_row) {
    const Bytes row = from_row.element * each, from_window = rows_.read_begin(from_row, each),
                to_window = rows_.read_begin(to_row, each);
    const Bytes begin = std::max(row, to_window), end = std::min(row + row_bytes, to_window + bytes);
    if (begin < end)
      std::copy_n(windows + from.place * bytes + begin - from_window, end - begin,
                  windows + to.place * bytes + begin - to_window);
  };
  for (std::size_t i = 0; i < touched.size(); ++i) {
    const FetchedRow row = rows_.row_of(touched[i].token);
    for (std::size_t next = i + 1; next < touched.size(); ++next) {
      const FetchedRow other = rows_.row_of(touched[next].token);
      if (other.block != row.block || rows_.read_begin(other, each) >= rows_.read_begin(row, each) + bytes) break;
      copy(touched[i], row, touched[next], other);
      copy(touched[next], other, touched[i], row);
    }
  }
  for (std::size_t i = 0; i < places(slot).size(); ++i) {
    const auto first = static_cast<std::size_t>(places(slot)[i].first);
    if (first != i) std::copy_n(windows + static_cast<Bytes>(first) * bytes, bytes, windows + static_cast<Bytes>(i) * bytes);
  }
}

}  // namespace spillway
