// The normalizers of tokenizer.json: changes to a text before its tokens are looked up.
// Not here: added tokens that are cut out before (tokenizer_added.h), words (tokenizer_split.h).
#pragma once

#include <string>
#include <string_view>

#include "files/json_place.h"
#include "trainer/text/text_map.h"

namespace spillway {

// The mark U+2581 stands for a space in SentencePiece's tokens and in its text. Here both have the space itself.
inline constexpr std::string_view kSpaceMark = "\xe2\x96\x81";

// `text` with spaces in place of marks: `text` itself if it has no mark, else in `buffer`. `map` gets the changes.
std::string_view with_spaces(std::string_view text, std::string& buffer, TextMap* map = nullptr);

class Normalization {
 public:
  Normalization() = default;
  // Reads NFC, or a mark for each space and one before the text. Refuses every other normalizer by name.
  explicit Normalization(const JsonPlace& normalizer);

  // Returns true if the spaces in the result of apply() stand for marks.
  bool marks_spaces() const { return marks_spaces_; }
  bool begins_with_mark() const { return begins_with_mark_; }  // also before every token that is searched for in the text
  // Returns `text`, which is valid UTF-8, normalized: `text` itself if there is nothing to change, else in `buffer`. `map` gets
  // the changes. `goes_on`: other text of the same document stands before it, so no mark is put there.
  std::string_view apply(std::string_view text, bool goes_on, std::string& buffer, TextMap* map = nullptr) const;

 private:
  void add(const JsonPlace& part);

  bool to_nfc_ = false;
  bool marks_spaces_ = false;
  bool begins_with_mark_ = false;
};

}  // namespace spillway
