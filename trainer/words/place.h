// Names of tiers as they stand in a sentence.
#pragma once

#include <fmt/core.h>

#include <string>

#include "memory/base/types.h"

namespace spillway {

// "the device", "the host", "nvme"
inline std::string in_words(Tier tier) { return fmt::format("{}{}", in_memory(tier) ? "the " : "", name_of(tier)); }

}  // namespace spillway
