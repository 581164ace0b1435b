// Where the bytes of a changed text came from. Not here: the changes (tokenizer_normalize.h, tokenizer_unicode.h).
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace spillway {

// Bytes [to_begin, to_end) of the changed text stand for [from_begin, from_end) of the source; other bytes are the source's own.
struct TextChange {
  std::size_t to_begin, to_end, from_begin, from_end;
};

class TextMap {
 public:
  void clear() { changes_.clear(); }
  // Changes come in ascending order.
  void add(TextChange change) { changes_.push_back(change); }
  // Notes that `bytes` bytes which the source lacks were put before the text.
  void insert_in_front(std::size_t bytes) {
    for (TextChange& change : changes_) {
      change.to_begin += bytes;
      change.to_end += bytes;
    }
    changes_.insert(changes_.begin(), {0, bytes, 0, 0});
  }

  // The offset in the source at which the first `end` bytes of the changed text end. An end within a change stays within it.
  std::size_t source_end(std::size_t end) const {
    const auto after = std::ranges::lower_bound(changes_, end, {}, &TextChange::to_begin);
    if (after == changes_.begin()) return end;
    const TextChange& change = *(after - 1);
    if (end >= change.to_end) return change.from_end + (end - change.to_end);
    const std::size_t last = change.from_end > change.from_begin ? change.from_end - 1 : change.from_end;
    return std::min(change.from_begin + (end - change.to_begin), last);
  }

 private:
  std::vector<TextChange> changes_;
};

}  // namespace spillway
