// Sequences of one file, by index. Token files are cut into windows; JSONL files have one sequence in each row.
// Not here: the order of the sequences (data.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "files/posix_file.h"

namespace spillway {

// Treatment of bad lines in JSONL.
enum class BadLines : std::uint8_t { refuse, skip };
struct SkippedLines {
  std::int64_t count = 0;
  std::string first;  // file, line and reason
};

// T: positions in a sequence. V: vocabulary.
class SequenceSource {
 public:
  virtual ~SequenceSource() = default;
  virtual std::int64_t sequences() const = 0;
  // Number of positions with loss in a sequence.
  virtual std::int64_t counted(std::int64_t index) const = 0;
  // Returns true if some sequence has no position with loss.
  virtual bool has_sequences_without_loss() const = 0;
  virtual void read(std::int64_t index, std::span<std::int32_t> tokens /*[T]*/, std::span<std::int32_t> targets /*[T]*/) = 0;
  virtual std::string describe(std::int64_t index) const = 0;  // "rows.jsonl line 3"
  virtual SkippedLines skipped() const { return {}; }
  virtual std::int64_t tokens_left_over() const { return 0; }  // tokens at the end, too few for a sequence
};

struct SequenceShape {
  std::int64_t seq_length;  // T
  std::int64_t vocabulary;  // V
};

// bytes: each byte is a token. llm_c: a header of 256 int32, then tokens of 16 or 32 bits. u16, u32: only tokens, of that width.
enum class TokenFileFormat : std::uint8_t { bytes, llm_c, u16, u32 };
// Cuts the file into windows of T + 1 tokens that overlap by one; the rest at the end is not used. Checks all tokens now.
std::unique_ptr<SequenceSource> open_token_file(PosixFile file, TokenFileFormat format, SequenceShape shape);

enum class LongRows : std::uint8_t { refuse, truncate };  // rows to be refused are bad lines
enum class TextRows : std::uint8_t { refuse, bytes, tokenizer };
// How text becomes tokens, for TextRows::tokenizer.
struct RowEncoding {
  std::function<void(std::string_view text, std::vector<std::int32_t>& ids)> encode;  // appends
  std::function<std::string(std::string_view row)> text_of_messages;                  // for a row of messages
};
// Parses all rows now, and again when they are read.
std::unique_ptr<SequenceSource> open_jsonl_file(PosixFile file, LongRows long_rows, TextRows text_rows, SequenceShape shape,
                                                RowEncoding encoding = {}, BadLines bad_lines = BadLines::refuse);

}  // namespace spillway
