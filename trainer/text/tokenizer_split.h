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

class Splitter {
 public:
  // `origin` (a file name) is for messages. Refuses every stage that it does not know, by name.
  Splitter(const JsonPlace& pre_tokenizer, const std::string& origin);
  ~Splitter();
  Splitter(Splitter&&) noexcept;
  Splitter& operator=(Splitter&&) noexcept;

  // Calls `word` with each word of `text` in order, as bytes (not in the byte-level alphabet). `text` is valid UTF-8 of at most
  // kLongestText bytes.
  void split(std::string_view text, SplitScratch& scratch, FunctionRef<void(std::string_view word)> word) const;

  SplitScratch scratch() const { return SplitScratch(stages_.size()); }

  // True where it can be known that words end at a line's end and before a space between letters, whatever stands around.
  bool has_safe_cuts() const { return has_safe_cuts_; }

  static constexpr std::size_t kLongestText = std::size_t{1} << 30;  // Oniguruma counts in int

 private:
  struct Stage;
  // `older` is the text as the expressions know it, byte for byte beside it.
  void run(std::size_t stage, std::string_view text, std::string_view older, SplitScratch& scratch,
           FunctionRef<void(std::string_view word)> word) const;
  bool finds_safe_cuts() const;

  std::vector<std::unique_ptr<Stage>> stages_;
  bool has_safe_cuts_ = false;
};

// Where text may be cut so that both parts give the words of the whole, if the splitter has such places: after the line's end of
// "x\ny" with a graphic x and a letter y, and before the space of "x y" between letters. The last such offset, or npos.
std::size_t last_safe_cut(std::string_view text);

}  // namespace spillway
