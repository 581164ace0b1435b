#include "trainer/text/tokenizer_added.h"

#include <algorithm>

#include "trainer/text/tokenizer_unicode.h"
#include "trainer/text/utf8.h"

namespace spillway {
namespace {

std::size_t start_of_space_before(std::string_view text, std::size_t first, std::size_t at, bool marks_spaces) {
  while (at > first) {
    const CodePoint c = decode_last_utf8(text.substr(0, at));
    if (!is_white_space(c.value) || (marks_spaces && c.value == ' ')) break;
    at -= static_cast<std::size_t>(c.bytes);
  }
  return at;
}

std::size_t end_of_space_after(std::string_view text, std::size_t at, bool marks_spaces) {
  while (at < text.size()) {
    const CodePoint c = decode_utf8(text.data() + at);
    if (!is_white_space(c.value) || (marks_spaces && c.value == ' ')) break;
    at += static_cast<std::size_t>(c.bytes);
  }
  return at;
}

bool is_inside_word(std::string_view text, std::size_t begin, std::size_t end) {
  return (begin > 0 && is_word(decode_last_utf8(text.substr(0, begin)).value)) ||
         (end < text.size() && is_word(decode_utf8(text.data() + end).value));
}

}  // namespace

AddedTokenFinder::AddedTokenFinder(std::span<const AddedToken> tokens, std::span<const std::string> contents, bool marks_spaces)
    : marks_spaces_(marks_spaces) {
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (contents[i].empty()) continue;
    if (nodes_.empty()) nodes_.emplace_back();
    std::size_t node = 0;
    for (const char c : contents[i]) {
      const auto found = std::ranges::find(nodes_[node].next, c, &std::pair<char, std::int32_t>::first);
      if (found != nodes_[node].next.end()) {
        node = static_cast<std::size_t>(found->second);
      } else {
        nodes_[node].next.emplace_back(c, static_cast<std::int32_t>(nodes_.size()));
        node = nodes_.size();
        nodes_.emplace_back();
      }
    }
    if (nodes_[node].token >= 0) continue;
    nodes_[node].token = static_cast<std::int32_t>(tokens_.size());
    const AddedToken& token = tokens[i];
    tokens_.push_back({token.id, token.strips_left, token.strips_right, token.is_single_word});
    is_first_byte_[static_cast<unsigned char>(contents[i][0])] = true;
  }
}

std::pair<std::int32_t, std::size_t> AddedTokenFinder::longest_at(std::string_view text, std::size_t at) const {
  std::pair<std::int32_t, std::size_t> longest = {-1, 0};
  std::size_t node = 0;
  for (std::size_t i = at; i < text.size(); ++i) {
    const auto found = std::ranges::find(nodes_[node].next, text[i], &std::pair<char, std::int32_t>::first);
    if (found == nodes_[node].next.end()) break;
    node = static_cast<std::size_t>(found->second);
    if (nodes_[node].token >= 0) longest = {nodes_[node].token, i + 1 - at};
  }
  return longest;
}

void AddedTokenFinder::split(std::string_view text, FunctionRef<void(std::string_view)> piece,
                             FunctionRef<void(std::int32_t, std::size_t)> token) const {
  std::size_t done = 0;
  std::size_t space_end = 0;  // end of the white space that was stripped last
  if (!nodes_.empty()) {
    for (std::size_t at = 0; at < text.size();) {
      if (!is_first_byte_[static_cast<unsigned char>(text[at])]) {
        ++at;
        continue;
      }
      const auto [index, length] = longest_at(text, at);
      if (index < 0) {
        ++at;
        continue;
      }
      std::size_t begin = at;
      std::size_t end = at + length;
      at = end;  // the inside of a match that is passed over is not searched either
      const Properties& found = tokens_[static_cast<std::size_t>(index)];
      if (found.is_single_word && is_inside_word(text, begin, end)) continue;
      if (found.strips_left) begin = begin > done ? start_of_space_before(text, done, begin, marks_spaces_) : done;
      if (found.strips_right)
        end = space_end = std::max(space_end, end) == end ? end_of_space_after(text, end, marks_spaces_) : space_end;
      if (begin >= end) continue;  // it lies in the white space that the token before it stripped
      if (done < begin) piece(text.substr(done, begin - done));
      token(found.id, end);
      done = end;
    }
  }
  if (done < text.size()) piece(text.substr(done));
}

}  // namespace spillway
