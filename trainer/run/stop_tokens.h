// The tokens at which a model's text ends. Not here: the token that ends a text to train on.
#pragma once

#include <cstdint>
#include <set>

#include "models/config.h"
#include "trainer/options/options.h"
#include "trainer/text/text_codec.h"

namespace spillway {

// From generation_config.json, else from config.json, else the tokenizer's token with one of the usual names.
std::set<std::int32_t> stop_tokens(const ModelOptions& options, const ModelConfig& config, const TextCodec& codec);

}  // namespace spillway
