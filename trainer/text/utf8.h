// Checks UTF-8 and decodes its code points. Not here: their properties (tokenizer_unicode.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace spillway {

inline constexpr std::size_t kValidUtf8 = static_cast<std::size_t>(-1);
// Offset of the first byte that is not valid UTF-8 (overlong forms, surrogates and a cut last character count as invalid), or
// kValidUtf8.
std::size_t find_invalid_utf8(std::string_view text);

// The functions below take only valid UTF-8.
struct CodePoint {
  std::int32_t value;
  int bytes;
};
CodePoint decode_utf8(const char* text);
CodePoint decode_last_utf8(std::string_view text);  // text is not empty

}  // namespace spillway
