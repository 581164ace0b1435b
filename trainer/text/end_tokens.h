// The tokens that end a text, and a turn of a conversation, in text to train on.
// Not here: the tokens at which `spillway generate` stops, which the model's own settings tell (trainer/run/generation.h).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "trainer/text/tokenizer.h"

namespace spillway {

// "eos_token" of the tokenizer_config.json beside the tokenizer, else the token with one of the usual names; nothing if there is
// neither. Throws InputError if the file says a token that the tokenizer lacks.
std::optional<std::int32_t> end_token_of(const Tokenizer& tokenizer);

// That token, and all that templates of the known kinds write at the end of an assistant's turn.
std::vector<std::int32_t> turn_ends_of(const Tokenizer& tokenizer);

}  // namespace spillway
