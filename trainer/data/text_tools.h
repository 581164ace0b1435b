// What turns the text of a run into tokens: its tokenizer and the chat template beside it, each loaded where it is first needed.
// Rows of tokens need neither.
// Not here: how a row becomes tokens (row_encoder.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainer/chat/chat_template.h"
#include "trainer/text/tokenizer.h"

namespace spillway {

// bytes: a token is a byte. none: text is refused.
enum class TextKind : std::uint8_t { none, bytes, tokenizer };

struct LoadedTokenizer {
  Tokenizer tokenizer;
  std::optional<std::int32_t> end;      // the token that ends a text
  std::vector<std::int32_t> turn_ends;  // the tokens that end a turn of a conversation
};

// Several threads may use it at the same time. Both functions throw a ResourceError, to each caller, if the file is missing or
// wrong: that is no fault of a row.
class TextTools {
 public:
  // `tokenizer`: empty: none; "bytes"; a tokenizer.json, or a directory that has one. `date`: what chat templates learn.
  explicit TextTools(std::string tokenizer, const TemplateDate& date = TemplateDate::today());
  ~TextTools();
  TextTools(TextTools&&) noexcept;
  TextTools& operator=(TextTools&&) noexcept;

  TextKind kind() const;
  const LoadedTokenizer& tokenizer(const std::string& file) const;  // `file` needs it, for messages
  const ChatTemplate& chat() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace spillway
