#include "trainer/data/packed_rows.h"

#include <algorithm>
#include <utility>

#include "memory/base/error.h"

namespace spillway {
namespace {

class PackedRows final : public SequenceSource {
 public:
  PackedRows(std::shared_ptr<TokenRows> rows, std::shared_ptr<const Packs> packs)
      : rows_(std::move(rows)), packs_(std::move(packs)) {}

  std::int64_t sequences() const override { return packs_->packs(); }
  std::int64_t tokens() const override {
    std::int64_t tokens = 0;
    for (std::int64_t row = 0; row < rows_->rows(); ++row) tokens += rows_->length(row);
    return tokens;
  }
  std::int64_t counted(std::int64_t index) const override { return packs_->with_loss(index); }
  std::int64_t positions(std::int64_t index) const override { return packs_->positions(index); }
  void read(std::int64_t index, const SequenceRows& rows) override {
    SPILLWAY_CHECK(rows.documents.size() == rows.tokens.size(), "a pack without room for where its documents begin");
    std::size_t at = 0;
    for (const RowPiece& piece : packs_->pieces(index)) {
      rows_->read(piece.row, row_, row_targets_);
      const auto length = static_cast<std::size_t>(piece.positions);
      SPILLWAY_CHECK(at + length <= rows.tokens.size(), "a pack of more than {} positions", rows.tokens.size());
      std::copy_n(row_.begin() + piece.begin, length, rows.tokens.begin() + static_cast<std::ptrdiff_t>(at));
      std::copy_n(row_targets_.begin() + piece.begin + 1, length, rows.targets.begin() + static_cast<std::ptrdiff_t>(at));
      std::ranges::fill(rows.documents.subspan(at, length), static_cast<std::int32_t>(at));
      at += length;
    }
    for (; at < rows.tokens.size(); ++at)
      rows.tokens[at] = 0, rows.targets[at] = kNoLoss, rows.documents[at] = static_cast<std::int32_t>(at);
  }

 private:
  std::shared_ptr<TokenRows> rows_;
  std::shared_ptr<const Packs> packs_;
  std::vector<std::int32_t> row_, row_targets_;
};

}  // namespace

std::unique_ptr<SequenceSource> sequences_of_packs(std::shared_ptr<TokenRows> rows, std::shared_ptr<const Packs> packs) {
  return std::make_unique<PackedRows>(std::move(rows), std::move(packs));
}

}  // namespace spillway
