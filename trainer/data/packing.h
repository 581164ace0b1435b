// Packs: rows of tokens that lie together in one sequence, as documents that do not see each other. They are formed once; their
// order in an epoch is that of any sequences (data.h).
// Not here: reading a pack (packed_rows.h), attention that keeps documents apart (models/).
//
// Legend: T positions of a sequence. A row of N tokens has N − 1 positions: the last token is a target alone.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trainer/data/token_rows.h"
#include "trainer/options/options.h"

namespace spillway {

// Positions [begin, begin + positions) of a row: a document of a pack.
struct RowPiece {
  std::int64_t row = 0;
  std::int32_t begin = 0, positions = 0;
};

struct PackRules {
  std::int64_t seq_length = 0;            // T
  DataOrder order = DataOrder::shuffled;  // in which rows come together
  std::uint64_t seed = 0;
  // Rows that are considered together. Fewer leave more padding; more put long rows apart from short ones in the order.
  std::int64_t window = 1 << 16;
};

class Packs {
 public:
  // Best fit decreasing in each window: the longest piece first, into the fullest pack that has room. A row longer than T is cut
  // into pieces of T and a rest; pieces without loss are left out. `rows` must be finished and is read only here.
  Packs(TokenRows& rows, const PackRules& rules);

  std::int64_t packs() const { return static_cast<std::int64_t>(first_.size()) - 1; }
  std::span<const RowPiece> pieces(std::int64_t pack) const;
  std::int64_t with_loss(std::int64_t pack) const { return with_loss_[static_cast<std::size_t>(pack)]; }
  std::int64_t positions(std::int64_t pack) const;  // without padding

  std::int64_t split_rows() const { return split_rows_; }
  std::int64_t pieces_left_out() const { return pieces_left_out_; }
  std::int64_t positions_left_out() const { return positions_left_out_; }
  // Positions of the document that a position is in, on average over all packs; padding is of documents of one.
  double mean_document() const { return mean_document_; }

 private:
  struct Weighed {
    RowPiece piece;
    std::int64_t with_loss = 0;
  };
  void add_pieces(TokenRows& rows, std::int64_t row, std::int64_t seq_length, std::vector<Weighed>& pieces);
  void pack(std::vector<Weighed>& pieces, std::int64_t seq_length);

  std::vector<RowPiece> pieces_;           // of all packs
  std::vector<std::int64_t> first_ = {0};  // [packs + 1] the first piece of each
  std::vector<std::int64_t> with_loss_;    // [packs]
  std::int64_t split_rows_ = 0, pieces_left_out_ = 0, positions_left_out_ = 0;
  double squares_ = 0, mean_document_ = 0;  // squares of the pieces' lengths
  std::vector<std::int32_t> tokens_, targets_;
};

}  // namespace spillway
