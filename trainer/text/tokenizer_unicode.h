// The little that tokenizers need of UTF-8 and Unicode: validity, code points, categories, NFC.
// Not here: regular expressions, whose classes are Oniguruma's (tokenizer_split.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace spillway {

inline constexpr std::size_t kValidUtf8 = static_cast<std::size_t>(-1);
// Offset of the first byte that no valid UTF-8 has there (overlong forms, surrogates and a cut last character count as
// invalid), or kValidUtf8.
std::size_t find_invalid_utf8(std::string_view text);

// What follows takes valid UTF-8 alone.
struct CodePoint {
  std::int32_t value;
  int bytes;
};
CodePoint decode_utf8(const char* text);
CodePoint decode_last_utf8(std::string_view text);  // text is not empty

bool is_letter(std::int32_t code_point);       // L*
bool is_number(std::int32_t code_point);       // N*
bool is_graphic(std::int32_t code_point);      // L*, N*, P*, S*
bool is_white_space(std::int32_t code_point);  // the property White_Space
bool is_word(std::int32_t code_point);         // \w of UTS 18

// `text` in NFC as the reference implementation has it (tokenizer_newer.h). The result is `text` itself where it is so
// already; else it lies in `buffer`.
std::string_view to_nfc(std::string_view text, std::string& buffer);

}  // namespace spillway
