// The few Unicode functions that tokenizers need: categories and NFC. They take only valid UTF-8.
// Not here: UTF-8 itself (utf8.h), regular expressions, whose classes are Oniguruma's (tokenizer_split.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "trainer/text/text_map.h"

namespace spillway {

bool is_letter(std::int32_t code_point);       // L*
bool is_number(std::int32_t code_point);       // N*
bool is_graphic(std::int32_t code_point);      // L*, N*, P*, S*
bool is_white_space(std::int32_t code_point);  // the property White_Space
bool is_word(std::int32_t code_point);         // \w of UTS 18

// Returns `text` in NFC as the reference implementation has it (tokenizer_newer.h): `text` itself if it is in NFC already, else
// in `buffer`. `map` gets the changes.
std::string_view to_nfc(std::string_view text, std::string& buffer, TextMap* map = nullptr);

}  // namespace spillway
