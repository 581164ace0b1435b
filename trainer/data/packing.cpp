#include "trainer/data/packing.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "memory/base/error.h"
#include "trainer/data/data_order.h"

namespace spillway {

Packs::Packs(TokenRows& rows, const PackRules& rules) {
  const std::int64_t count = rows.rows(), T = rules.seq_length;
  SPILLWAY_CHECK(T > 0 && rules.window > 0, "packs of {} positions from {} rows", T, rules.window);
  // No epoch has this number, so that no order of packs repeats the order of rows.
  constexpr std::uint64_t kNoEpoch = ~std::uint64_t{0};
  const Permutation permutation(static_cast<std::uint64_t>(std::max<std::int64_t>(count, 1)), rules.seed, kNoEpoch);
  std::vector<Weighed> pieces;
  for (std::int64_t begin = 0; begin < count; begin += rules.window) {
    pieces.clear();
    for (std::int64_t i = begin; i < std::min(count, begin + rules.window); ++i) {
      const bool in_order = rules.order == DataOrder::sequential;
      add_pieces(rows, in_order ? i : static_cast<std::int64_t>(permutation.at(static_cast<std::uint64_t>(i))), T, pieces);
    }
    pack(pieces, T);
  }
  pieces_.shrink_to_fit(), first_.shrink_to_fit(), with_loss_.shrink_to_fit();
  tokens_ = {}, targets_ = {};
  std::int64_t used = 0;
  for (std::int64_t pack = 0; pack < packs(); ++pack) used += positions(pack);
  const std::int64_t all = packs() * T;
  mean_document_ = (squares_ + static_cast<double>(all - used)) / static_cast<double>(std::max<std::int64_t>(all, 1));
}

std::span<const RowPiece> Packs::pieces(std::int64_t pack) const {
  const auto at = static_cast<std::size_t>(pack);
  return std::span(pieces_).subspan(static_cast<std::size_t>(first_[at]), static_cast<std::size_t>(first_[at + 1] - first_[at]));
}

std::int64_t Packs::positions(std::int64_t pack) const {
  const std::span<const RowPiece> of = pieces(pack);
  return std::accumulate(of.begin(), of.end(), std::int64_t{0},
                         [](std::int64_t sum, const RowPiece& piece) { return sum + piece.positions; });
}

void Packs::add_pieces(TokenRows& rows, std::int64_t row, std::int64_t seq_length, std::vector<Weighed>& pieces) {
  const std::int64_t positions = rows.length(row) - 1;
  if (positions <= seq_length) {
    pieces.push_back({{row, 0, static_cast<std::int32_t>(positions)}, rows.with_loss(row)});
    return;
  }
  ++split_rows_;
  rows.read(row, tokens_, targets_);
  for (std::int64_t begin = 0; begin < positions; begin += seq_length) {
    const std::int64_t length = std::min(seq_length, positions - begin);
    const auto targets = std::span(targets_).subspan(static_cast<std::size_t>(begin) + 1, static_cast<std::size_t>(length));
    const std::int64_t with_loss = length - std::ranges::count(targets, kNoLoss);
    if (with_loss == 0) {
      ++pieces_left_out_, positions_left_out_ += length;
      continue;
    }
    pieces.push_back({{row, static_cast<std::int32_t>(begin), static_cast<std::int32_t>(length)}, with_loss});
  }
}

// Packs are numbered as they are begun, so that nothing depends on how the map lies in memory.
void Packs::pack(std::vector<Weighed>& pieces, std::int64_t seq_length) {
  std::ranges::stable_sort(pieces, [](const Weighed& a, const Weighed& b) { return a.piece.positions > b.piece.positions; });
  std::map<std::int64_t, std::vector<std::int64_t>> by_room;  // open packs of this window, by their free positions
  std::vector<std::int64_t> pack_of, sizes;
  for (const Weighed& weighed : pieces) {
    const std::int64_t length = weighed.piece.positions;
    squares_ += static_cast<double>(length) * static_cast<double>(length);
    std::int64_t pack = std::ssize(sizes), room = seq_length;
    if (const auto best = by_room.lower_bound(length); best != by_room.end()) {
      room = best->first, pack = best->second.back();
      best->second.pop_back();
      if (best->second.empty()) by_room.erase(best);
    } else {
      sizes.push_back(0);
    }
    pack_of.push_back(pack);
    ++sizes[static_cast<std::size_t>(pack)];
    if (room > length) by_room[room - length].push_back(pack);
  }
  const std::size_t packs_before = first_.size() - 1;
  std::vector<std::int64_t> next;  // where each pack's next piece goes
  for (const std::int64_t size : sizes) {
    next.push_back(first_.back());
    first_.push_back(first_.back() + size);
  }
  with_loss_.resize(first_.size() - 1);
  pieces_.resize(static_cast<std::size_t>(first_.back()));
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const auto pack = static_cast<std::size_t>(pack_of[i]);
    pieces_[static_cast<std::size_t>(next[pack]++)] = pieces[i].piece;
    with_loss_[packs_before + pack] += pieces[i].with_loss;
  }
}

}  // namespace spillway
