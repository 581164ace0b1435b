// Where the Unicode of the distribution's libraries (Oniguruma, utf8proc) is not that of the reference implementation: characters
// that Unicode 15 and 16 added, which its expressions know, and marks that its normalisation, which is older, does not.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace spillway {

// True where `text` (valid UTF-8) has newer characters; `buffer` is then the text with older ones of the same category and the
// same number of bytes in their places, for matching alone.
bool replace_newer_characters(std::string_view text, std::string& buffer);

bool is_newer_word_character(std::int32_t code_point);  // \w of UTS 18

// A mark that neither moves nor composes in the reference's NFC, and lets nothing past it.
bool is_mark_without_normalization(std::int32_t code_point);

}  // namespace spillway
