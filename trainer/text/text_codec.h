// Turns text into a model's tokens and back, by its tokenizer or with one token for each byte.
// Not here: text to train on (trainer/data/text_documents.h, trainer/data/data.h).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/options/options.h"
#include "trainer/text/tokenizer.h"

namespace spillway {

// The tokenizer of a run: the loaded run's own copy, else --tokenizer, else the model's tokenizer.json; empty if there is none.
std::string tokenizer_of(const RunOptions& options);

class TextCodec {
 public:
  // `tokenizer` as tokenizer_of returns it. Throws InputError if there is none.
  TextCodec(const std::string& tokenizer, std::int64_t vocabulary);

  // The tokens that the model continues: the tokenizer's leading tokens, then the text.
  // Throws InputError if the text is not UTF-8 or needs a token that the model does not have.
  std::vector<std::int32_t> prompt(std::string_view text) const;
  // The same without the leading tokens: a chat template has written those that it wants.
  std::vector<std::int32_t> as_it_is(std::string_view text) const;
  std::string bytes_of(std::int32_t token) const;  // empty for special tokens and for ids without a token
  std::optional<std::int32_t> end_of_text() const;

 private:
  void check(const std::vector<std::int32_t>& ids) const;

  std::int64_t vocabulary_;
  std::optional<Tokenizer> tokenizer_;  // none: one token for each byte
};

// Turns the bytes of tokens, as they arrive, into whole characters. Bytes that are not UTF-8 become U+FFFD.
class Utf8Stream {
 public:
  std::string add(std::string_view bytes);
  std::string finish();  // the rest: a character that began and will not be completed

 private:
  std::string pending_;
};

}  // namespace spillway
