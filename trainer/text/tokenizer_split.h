// Pre-tokenizers: split text into the words that byte-pair encoding works on, by the stages of tokenizer.json's "pre_tokenizer".
// Not here: added tokens, which are cut out before (tokenizer_added.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "files/json_place.h"
#include "memory/base/parallel.h"

namespace spillway {

// Memory that one caller needs for a search; callers never share it.
class SplitScratch {
 public:
  explicit SplitScratch(std::size_t stages);
  ~SplitScratch();
  SplitScratch(SplitScratch&&) noexcept;
  SplitScratch& operator=(SplitScratch&&) noexcept;

 private:
  friend class Splitter;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The places at which text may be cut so that both parts give the words of the whole.
struct SafeCuts {
  bool after_lines = false;    // after the line's end of "x\ny" with a graphic x and a letter y
  bool before_spaces = false;  // before the space of "x y" between letters
};
// The last safe offset, or npos.
std::size_t last_safe_cut(std::string_view text, SafeCuts cuts);

// Returns true if the stages include a Metaspace, which marks spaces.
bool has_metaspace(const JsonPlace& pre_tokenizer);

class Splitter {
 public:
  // `origin` (a file name) is for messages. Refuses every stage that it does not know, by name. `marks_spaces`: the spaces of the
  // text stand for the mark of SentencePiece's tokens (tokenizer_normalize.h).
  Splitter(const JsonPlace& pre_tokenizer, bool marks_spaces, const std::string& origin);
  ~Splitter();
  Splitter(Splitter&&) noexcept;
  Splitter& operator=(Splitter&&) noexcept;

  // From now on, words also end before spaces: if no token has a space after another character, merges never see the difference.
  void end_words_before_spaces();

  // Gets a word, as bytes (not in the byte-level alphabet), and the offset in the text of its first byte; -1 if that byte is a
  // space put before the text.
  using TakeWord = FunctionRef<void(std::string_view word, std::ptrdiff_t at)>;
  // Calls `word` with each word of `text` in order. `text` is valid UTF-8 of at most kLongestText bytes; if spaces are marked, it
  // has spaces in place of marks. `begins`: no other text of the same document stood before it.
  void split(std::string_view text, bool begins, SplitScratch& scratch, TakeWord word) const;

  SplitScratch scratch() const { return SplitScratch(stages_.size()); }

  SafeCuts safe_cuts() const { return safe_cuts_; }

  static constexpr std::size_t kLongestText = std::size_t{1} << 30;  // Oniguruma counts in int

 private:
  struct Stage;
  void add_metaspace(const JsonPlace& part);
  // A part of the text on its way through the stages.
  struct Part {
    std::string_view text;
    std::string_view older;  // `text` with the characters that the expressions know, at the same byte offsets
    std::ptrdiff_t at;       // offset in the whole text
    bool begins;
  };
  void run(std::size_t stage, const Part& part, SplitScratch& scratch, TakeWord word) const;
  bool finds_safe_cuts() const;

  std::vector<std::unique_ptr<Stage>> stages_;
  SafeCuts safe_cuts_;
};

}  // namespace spillway
