#include "trainer/text/utf8.h"

#include <cstring>

namespace spillway {
namespace {

bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xc0U) == 0x80; }

}  // namespace

std::size_t find_invalid_utf8(std::string_view text) {
  const char* const begin = text.data();
  std::size_t i = 0;
  while (i < text.size()) {
    if (i + 8 <= text.size()) {
      std::uint64_t word;
      std::memcpy(&word, begin + i, 8);
      if ((word & 0x8080808080808080U) == 0) {
        i += 8;
        continue;
      }
    }
    const auto lead = static_cast<unsigned char>(begin[i]);
    if (lead < 0x80) {
      ++i;
      continue;
    }
    const std::size_t length = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    if (lead < 0xc2 || lead > 0xf4 || i + length > text.size()) return i;
    const auto second = static_cast<unsigned char>(begin[i + 1]);
    if ((second & 0xc0U) != 0x80 || (lead == 0xe0 && second < 0xa0) || (lead == 0xed && second > 0x9f) ||
        (lead == 0xf0 && second < 0x90) || (lead == 0xf4 && second > 0x8f)) {
      return i;
    }
    for (std::size_t k = 2; k < length; ++k) {
      if (!is_continuation(begin[i + k])) return i;
    }
    i += length;
  }
  return kValidUtf8;
}

CodePoint decode_utf8(const char* text) {
  const auto at = [text](int i) { return static_cast<std::int32_t>(static_cast<unsigned char>(text[i])); };
  const std::int32_t lead = at(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xe0) return {(lead & 0x1f) << 6 | (at(1) & 0x3f), 2};
  if (lead < 0xf0) return {(lead & 0x0f) << 12 | (at(1) & 0x3f) << 6 | (at(2) & 0x3f), 3};
  return {(lead & 0x07) << 18 | (at(1) & 0x3f) << 12 | (at(2) & 0x3f) << 6 | (at(3) & 0x3f), 4};
}

CodePoint decode_last_utf8(std::string_view text) {
  std::size_t i = text.size() - 1;
  while (i > 0 && is_continuation(text[i])) --i;
  return decode_utf8(text.data() + i);
}

}  // namespace spillway
