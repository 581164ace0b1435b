// Bridges the gap between the Unicode version of the distribution's libraries (Oniguruma, utf8proc) and the reference
// implementation's: its expressions know characters that Unicode 15 and 16 added; its normalization is older and lacks some
// marks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace spillway {

// Returns true if `text` (valid UTF-8) has newer characters. `buffer` is then the text with older characters, of the same
// category and number of bytes, in their places, for matching alone.
bool replace_newer_characters(std::string_view text, std::string& buffer);

bool is_newer_word_character(std::int32_t code_point);  // \w of UTS 18

// A mark that the reference's NFC neither moves nor composes, and that no other mark moves past.
bool is_mark_without_normalization(std::int32_t code_point);

}  // namespace spillway
