// Letters and numbers that Unicode 15 and 16 added, which the distribution's Oniguruma may not know yet and the reference
// implementation does. Not here: marks and symbols, which the tokenizers' expressions treat as they treat what is unassigned.
#pragma once

#include <string>
#include <string_view>

namespace spillway {

// True where `text` (valid UTF-8) has such characters; `buffer` is then the text with older ones of the same category and the
// same number of bytes in their places, for matching alone.
bool replace_newer_characters(std::string_view text, std::string& buffer);

}  // namespace spillway
