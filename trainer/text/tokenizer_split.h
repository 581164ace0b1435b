// Pre-tokenizers: text into the words that byte-pair encoding then works on, by the stages of tokenizer.json's "pre_tokenizer".
// Not here: added tokens, which are cut out before (tokenizer_added.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "files/json_place.h"
#include "memory/parallel.h"

namespace spillway {

// What one caller at a time needs to search: shared by nobody.
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

// Where text may be cut so that both parts give the words of the whole.
struct SafeCuts {
  bool after_lines = false;    // after the line's end of "x\ny" with a graphic x and a letter y
  bool before_spaces = false;  // before the space of "x y" between letters
};
// The last such offset, or npos.
std::size_t last_safe_cut(std::string_view text, SafeCuts cuts);

// Whether a Metaspace is among the stages: it marks spaces.
bool has_metaspace(const JsonPlace& pre_tokenizer);

class Splitter {
 public:
  // `origin` (a file name) is for messages. Refuses every stage that it does not know, by name. `marks_spaces`: the space of the
  // text that is given is the mark of SentencePiece's tokens (tokenizer_normalize.h).
  Splitter(const JsonPlace& pre_tokenizer, bool marks_spaces, const std::string& origin);
  ~Splitter();
  Splitter(Splitter&&) noexcept;
  Splitter& operator=(Splitter&&) noexcept;

  // From now on words end before spaces, too: where no token has a space after anything else, merges never see the difference.
  void end_words_before_spaces();

  // Calls `word` with each word of `text` in order, as bytes (not in the byte-level alphabet). `text` is valid UTF-8 of at most
  // kLongestText bytes. `begins`: nothing of the same text stood before it.
  void split(std::string_view text, bool begins, SplitScratch& scratch, FunctionRef<void(std::string_view word)> word) const;

  SplitScratch scratch() const { return SplitScratch(stages_.size()); }

  SafeCuts safe_cuts() const { return safe_cuts_; }

  static constexpr std::size_t kLongestText = std::size_t{1} << 30;  // Oniguruma counts in int

 private:
  struct Stage;
  void add_metaspace(const JsonPlace& part);
  // `older` is the text as the expressions know it, byte for byte beside it.
  void run(std::size_t stage, std::string_view text, std::string_view older, bool begins, SplitScratch& scratch,
           FunctionRef<void(std::string_view word)> word) const;
  bool finds_safe_cuts() const;

  std::vector<std::unique_ptr<Stage>> stages_;
  SafeCuts safe_cuts_;
};

}  // namespace spillway
