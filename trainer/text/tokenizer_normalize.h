// Normalizers: what tokenizer.json has done to a text before tokens are looked for in it.
// Not here: added tokens that are cut out before (tokenizer_added.h), words (tokenizer_split.h).
#pragma once

#include <string>
#include <string_view>

#include "files/json_place.h"

namespace spillway {

// SentencePiece's tokens have this mark, U+2581, where text has a space, and its text has it, too. Here both have the space.
inline constexpr std::string_view kSpaceMark = "\xe2\x96\x81";

// `text` with spaces in place of marks; `text` itself where it has none, else in `buffer`.
std::string_view with_spaces(std::string_view text, std::string& buffer);

class Normalization {
 public:
  Normalization() = default;
  // NFC; or a mark for a space, and one before the text. Refuses every other normalizer, by name.
  explicit Normalization(const JsonPlace& normalizer);

  // Whether the spaces of what apply() gives are marks.
  bool marks_spaces() const { return marks_spaces_; }
  bool begins_with_mark() const { return begins_with_mark_; }  // and so does every token that is looked for in it
  // `text`, which is valid UTF-8, normalised: itself where nothing is to be done, else in `buffer`. `goes_on`: something of the
  // same text stood before it, and nothing is put there.
  std::string_view apply(std::string_view text, bool goes_on, std::string& buffer) const;

 private:
  void add(const JsonPlace& part);

  bool to_nfc_ = false;
  bool marks_spaces_ = false;
  bool begins_with_mark_ = false;
};

}  // namespace spillway
