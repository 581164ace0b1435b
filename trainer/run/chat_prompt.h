// Makes a prompt of one message of a user, by the chat template that comes with the tokenizer, up to where the assistant begins.
// Not here: the template (trainer/chat/chat_template.h), prompts that are taken as they are (trainer/text/text_codec.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/options/options.h"
#include "trainer/text/text_codec.h"

namespace spillway {

// The tokens of one message of a user. Throws InputError if the tokenizer has no chat template, or the template refuses it.
std::vector<std::int32_t> chat_prompt(const RunOptions& options, const TextCodec& codec, const std::string& message);

}  // namespace spillway
