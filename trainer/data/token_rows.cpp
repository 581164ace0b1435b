#include "trainer/data/token_rows.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "memory/base/error.h"

namespace spillway {
namespace {

constexpr std::uint32_t kNoTarget = std::uint32_t{1} << 31;
constexpr std::size_t kPending = 1 << 18;  // int32 in memory before they are written

class RowsOfFile final : public SequenceSource {
 public:
  RowsOfFile(std::shared_ptr<TokenRows> rows, std::int64_t first, std::int64_t count)
      : rows_(std::move(rows)), first_(first), count_(count) {}

  std::int64_t sequences() const override { return count_; }
  std::int64_t tokens() const override {
    std::int64_t tokens = 0;
    for (std::int64_t i = 0; i < count_; ++i) tokens += rows_->length(first_ + i);
    return tokens;
  }
  std::int64_t counted(std::int64_t index) const override { return rows_->with_loss(first_ + index); }
  std::int64_t positions(std::int64_t index) const override { return rows_->length(first_ + index) - 1; }
  void read(std::int64_t index, const SequenceRows& rows) override {
    rows_->read(first_ + index, row_, row_targets_);
    const std::size_t used = row_.size() - 1;
    SPILLWAY_CHECK(used <= rows.tokens.size(), "a row of {} tokens for {} positions", row_.size(), rows.tokens.size());
    std::copy_n(row_.begin(), used, rows.tokens.begin());
    std::copy_n(row_targets_.begin() + 1, used, rows.targets.begin());
    std::ranges::fill(rows.tokens.subspan(used), 0);
    std::ranges::fill(rows.targets.subspan(used), kNoLoss);
    std::ranges::fill(rows.documents, 0);
  }

 private:
  std::shared_ptr<TokenRows> rows_;
  std::int64_t first_, count_;
  std::vector<std::int32_t> row_, row_targets_;
};

}  // namespace

void TokenRows::add(std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets) {
  SPILLWAY_CHECK(tokens.size() == targets.size() && tokens.size() <= std::numeric_limits<std::int32_t>::max(),
                 "a row of {} tokens and {} targets", tokens.size(), targets.size());
  if (!written_) written_ = std::make_unique<HiddenTokenFile>(TokenWidth::u32);
  std::int32_t with_loss = 0;
  bool has_others = false;
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    const bool trains = targets[t] != kNoLoss;
    with_loss += trains && t > 0 ? 1 : 0;
    has_others = has_others || (trains && targets[t] != tokens[t]);
    pending_.push_back(static_cast<std::int32_t>(static_cast<std::uint32_t>(tokens[t]) | (trains ? 0 : kNoTarget)));
  }
  if (has_others) pending_.insert(pending_.end(), targets.begin(), targets.end());
  places_.push_back(
      {static_cast<std::uint64_t>(end_), has_others ? 1U : 0U, static_cast<std::int32_t>(tokens.size()), with_loss});
  end_ += static_cast<std::int64_t>(tokens.size()) * (has_others ? 2 : 1);
  if (pending_.size() >= kPending) flush();
}

void TokenRows::flush() {
  written_->write(pending_);
  pending_.clear();
}

void TokenRows::finish() {
  places_.shrink_to_fit();
  if (!written_) return;
  flush();
  pending_ = {};
  file_ = std::make_shared<const PosixFile>(written_->take());
  written_.reset();
}

std::shared_ptr<TokenRows> TokenRows::part(FunctionRef<bool(std::int64_t row)> takes) const {
  auto part = std::make_shared<TokenRows>();
  part->file_ = file_;
  for (std::int64_t row = 0; row < rows(); ++row) {
    if (takes(row)) part->places_.push_back(place(row));
  }
  part->places_.shrink_to_fit();
  return part;
}

void TokenRows::read(std::int64_t row, std::vector<std::int32_t>& tokens, std::vector<std::int32_t>& targets) {
  const Place& at = place(row);
  const auto length = static_cast<std::size_t>(at.length);
  const bool has_others = at.has_others != 0;
  tokens.resize(has_others ? 2 * length : length);
  file_->read(static_cast<Bytes>(at.first * sizeof(std::int32_t)), std::as_writable_bytes(std::span(tokens)));
  if (has_others) targets.assign(tokens.begin() + at.length, tokens.end());
  tokens.resize(length);
  targets.resize(length);
  for (std::size_t t = 0; t < length; ++t) {
    const auto word = static_cast<std::uint32_t>(tokens[t]);
    tokens[t] = static_cast<std::int32_t>(word & ~kNoTarget);
    if (!has_others) targets[t] = (word & kNoTarget) != 0 ? kNoLoss : tokens[t];
  }
}

std::unique_ptr<SequenceSource> sequences_of_rows(std::shared_ptr<TokenRows> rows, std::int64_t first, std::int64_t count) {
  return std::make_unique<RowsOfFile>(std::move(rows), first, count);
}

}  // namespace spillway
