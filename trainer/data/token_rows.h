// Rows of tokens, all of a run's JSONL, in a file without a name: made once, then read by index. What reads them (sequences,
// lengths, packing, step counts) parses and tokenizes nothing.
// The file is a row after a row, each of n >= 2 int32 in the machine's order: bits 0 to 30 are the token, bit 31 is set if it is
// no target. A row that has other targets than its own tokens has n int32 more, its targets (or kNoLoss), right behind. In memory
// there is an index of 16 bytes a row. Every row has at least one position with loss.
// Not here: how rows become tokens (text_documents.h).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "memory/base/parallel.h"
#include "trainer/data/data_source.h"
#include "trainer/data/token_file.h"

namespace spillway {

class TokenRows {
 public:
  TokenRows() = default;

  // Appends a row; targets[t] is the token itself, another label, or kNoLoss.
  void add(std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets);
  void finish();  // nothing may be added after it, and read only then

  std::int64_t rows() const { return static_cast<std::int64_t>(places_.size()); }
  std::int64_t length(std::int64_t row) const { return place(row).length; }        // tokens
  std::int64_t with_loss(std::int64_t row) const { return place(row).with_loss; }  // targets of tokens 1 to length − 1

  // Those rows, in order, as rows of their own; the file is shared. This must be finished.
  std::shared_ptr<TokenRows> part(FunctionRef<bool(std::int64_t row)> takes) const;

  // Fills both with the row's tokens and targets, [length]. One caller at a time.
  void read(std::int64_t row, std::vector<std::int32_t>& tokens, std::vector<std::int32_t>& targets);

 private:
  struct Place {
    std::uint64_t first : 63;      // int32 in the file before the row
    std::uint64_t has_others : 1;  // its targets lie behind it
    std::int32_t length;
    std::int32_t with_loss;
  };
  const Place& place(std::int64_t row) const { return places_[static_cast<std::size_t>(row)]; }
  void flush();

  std::vector<Place> places_;
  std::int64_t end_ = 0;  // int32 of all rows
  std::unique_ptr<HiddenTokenFile> written_;
  std::vector<std::int32_t> pending_;  // not written yet
  std::shared_ptr<const PosixFile> file_;
};

// The rows from `first` on, `count` of them, as sequences: a row shorter than one is padded without loss. `rows` must be finished
// when the result is read.
std::unique_ptr<SequenceSource> sequences_of_rows(std::shared_ptr<TokenRows> rows, std::int64_t first, std::int64_t count);

}  // namespace spillway
