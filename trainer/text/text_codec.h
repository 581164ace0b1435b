// Text in and text out of a model: by its tokenizer, or with a token for each byte.
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

// The loaded run's own, else --tokenizer, else the tokenizer.json of the model; empty where there is neither.
std::string tokenizer_of(const RunOptions& options);

class TextCodec {
 public:
  // `tokenizer` as from tokenizer_of. InputError where there is none.
  TextCodec(const std::string& tokenizer, std::int64_t vocabulary);

  // What the model goes on from: the tokens that the tokenizer puts before a text, then the text.
  // InputError for what is not UTF-8, and for a token that the model has not.
  std::vector<std::int32_t> prompt(std::string_view text) const;
  std::string bytes_of(std::int32_t token) const;  // nothing for special tokens, and for ids that have none
  std::optional<std::int32_t> end_of_text() const;

 private:
  std::int64_t vocabulary_;
  std::optional<Tokenizer> tokenizer_;  // none: bytes
};

// Bytes of tokens as they come, given on as whole characters. Bytes that are no UTF-8 become U+FFFD.
class Utf8Stream {
 public:
  std::string add(std::string_view bytes);
  std::string finish();  // what began and will not be completed

 private:
  std::string pending_;
};

}  // namespace spillway
