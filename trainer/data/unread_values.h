// Lines of JSONL as Python writes them: NaN, Infinity and lone surrogates, which are no JSON, in the values of keys that nobody
// reads. Such a value does not cost its row.
// Not here: what is read of a row (row_reader.h).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "memory/parallel.h"

namespace spillway {

// The line with 0 and U+FFFD in their place, byte for byte as long; nothing where there is none of them. `reads` is told a key of
// the line's object, and all of them.
std::optional<std::string> with_unread_values_mended(
    std::string_view line, FunctionRef<bool(std::string_view key, const std::vector<std::string_view>& keys)> reads);

}  // namespace spillway
