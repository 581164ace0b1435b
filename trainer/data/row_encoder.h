// Turns a row of JSONL into tokens and targets.
// Not here: the shapes of rows (row_content.h), which text has loss (trainer/chat/loss_spans.h), files (text_documents.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/data/data_source.h"
#include "trainer/data/row_content.h"
#include "trainer/data/text_tools.h"

namespace spillway {

enum class LongRows : std::uint8_t { refuse, truncate, keep };  // rows to be refused are bad lines
// As the flags say; `split` goes before `truncate`.
constexpr LongRows long_rows_of(bool split, bool truncate) {
  return split ? LongRows::keep : truncate ? LongRows::truncate : LongRows::refuse;
}

// What becomes of rows. As it stands: tokens as they are, every token a target.
struct RowRules {
  TrainOn train_on = TrainOn::all;
  TextEnds text_ends = TextEnds::none;
  std::int64_t longest = INT64_MAX;  // tokens of a row
  LongRows long_rows = LongRows::refuse;
  std::int64_t vocabulary = INT32_MAX;  // tokens are below it
  DataColumns columns = {};             // other names of their keys
  bool needs_loss = false;  // a row without loss is refused, an empty one, too; if not, every token of a row is a target
};

struct EncodedRow {
  std::int64_t tokens = 0;     // before it was cut
  std::int64_t with_loss = 0;  // targets that train: all but the first token's and those without loss
  bool is_cut = false;
};

// For one caller at a time; the tools may be shared and must outlive it.
class RowEncoder {
 public:
  RowEncoder(const TextTools& tools, const RowRules& rules)
      : tools_(&tools), rules_(rules), limits_{.most = most_tokens(), .vocabulary = rules.vocabulary, .columns = rules.columns} {}

  // Appends the row's tokens, and for each its target: the token, another label, or kNoLoss. `file` is for messages. Throws
  // InputError if the row is refused, and appends nothing then; ResourceError if that is no fault of the row.
  EncodedRow encode(std::string_view line, const std::string& file, std::vector<std::int32_t>& tokens,
                    std::vector<std::int32_t>& targets);

 private:
  std::int64_t most_tokens() const { return rules_.long_rows == LongRows::keep ? INT64_MAX : rules_.longest; }
  TokenEncoder& encoder(const std::string& file);
  void add_ids(std::vector<std::int32_t>& tokens, std::vector<std::int32_t>& targets) const;
  void add_text(const std::string& file, std::vector<std::int32_t>& tokens, std::vector<std::int32_t>& targets);
  void add_conversation(const std::string& file, std::vector<std::int32_t>& tokens, std::vector<std::int32_t>& targets);
  // Adds the targets of the tokens from `first` on, whose text has these spans.
  void add_targets(std::string_view text, const std::vector<LossSpan>& spans, const LoadedTokenizer& loaded,
                   const std::vector<std::int32_t>& tokens, std::size_t first, std::vector<std::int32_t>& targets) const;

  const TextTools* tools_;
  RowRules rules_;
  RowLimits limits_;
  std::optional<TokenEncoder> encoder_;  // made at the first text
  RowContent content_;
  std::vector<std::size_t> ends_;  // of the row's tokens in its text
};

}  // namespace spillway
