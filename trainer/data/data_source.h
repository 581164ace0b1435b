// Sequences of one file, or of all rows, by index. Token files are cut into windows; a JSONL file has one sequence in each row,
// unless rows are packed.
// Not here: the order of the sequences (data.h), how rows become tokens (text_documents.h), packs (packing.h).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "files/posix_file.h"

namespace spillway {

// Room for one sequence.
struct SequenceRows {
  std::span<std::int32_t> tokens, targets;  // [T]
  std::span<std::int32_t> documents;        // [T], where each position's document begins; empty: nobody packs
};

// T: positions in a sequence. V: vocabulary.
class SequenceSource {
 public:
  virtual ~SequenceSource() = default;
  virtual std::int64_t sequences() const = 0;
  virtual std::int64_t tokens() const = 0;
  // Number of positions with loss in a sequence, at least one.
  virtual std::int64_t counted(std::int64_t index) const = 0;
  virtual std::int64_t positions(std::int64_t index) const = 0;  // of a sequence, without padding
  virtual void read(std::int64_t index, const SequenceRows& rows) = 0;
  virtual std::int64_t tokens_left_over() const { return 0; }  // tokens at the end, too few for a sequence
};

inline constexpr std::int32_t kNoLoss = -100;  // the target of a position without loss

struct SequenceShape {
  std::int64_t seq_length;  // T
  std::int64_t vocabulary;  // V
};

// bytes: each byte is a token. llm_c: a header of 256 int32, then tokens of 16 or 32 bits. u16, u32: only tokens, of that width.
enum class TokenFileFormat : std::uint8_t { bytes, llm_c, u16, u32 };
// Cuts the file into windows of T + 1 tokens that overlap by one; the rest at the end is not used. Checks all tokens now.
// `name` is for messages.
std::unique_ptr<SequenceSource> open_token_file(PosixFile file, const std::string& name, TokenFileFormat format,
                                                SequenceShape shape);

}  // namespace spillway
