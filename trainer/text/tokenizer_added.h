// Finds added tokens (tokenizer.json's "added_tokens") in text and cuts the text there. The leftmost match wins, and among these
// the longest.
// Not here: the use of the text between them.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "memory/base/parallel.h"

namespace spillway {

struct AddedToken {
  std::string content;
  std::int32_t id = 0;
  bool is_special = false;
  bool is_normalized = false;  // searched for after normalization
  bool strips_left = false;    // removes the white space before it
  bool strips_right = false;
  bool is_single_word = false;  // matches only if no word continues before or after it
};

class AddedTokenFinder {
 public:
  AddedTokenFinder() = default;
  // Keeps the first of tokens with equal content. `contents` are the tokens' contents, normalized if the tokens are.
  // `marks_spaces`: a space of the text stands for a mark, which is not white space.
  AddedTokenFinder(std::span<const AddedToken> tokens, std::span<const std::string> contents, bool marks_spaces = false);

  bool is_empty() const { return nodes_.empty(); }
  // Calls `piece` with each non-empty piece between tokens and `token` with each token and the offset at which it ends, with the
  // white space that it strips, in order.
  void split(std::string_view text, FunctionRef<void(std::string_view piece)> piece,
             FunctionRef<void(std::int32_t id, std::size_t end)> token) const;

 private:
  struct Properties {
    std::int32_t id;
    bool strips_left;
    bool strips_right;
    bool is_single_word;
  };
  struct Node {
    std::vector<std::pair<char, std::int32_t>> next;
    std::int32_t token = -1;  // index into tokens_
  };
  // The index and length of the longest token at `at`; index -1 if there is none.
  std::pair<std::int32_t, std::size_t> longest_at(std::string_view text, std::size_t at) const;

  std::vector<Node> nodes_;  // a trie; the first is the root
  std::vector<Properties> tokens_;
  std::array<bool, 256> is_first_byte_ = {};
  bool marks_spaces_ = false;
};

}  // namespace spillway
