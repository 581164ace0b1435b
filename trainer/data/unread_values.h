// Mends lines of JSONL that Python wrote: NaN, Infinity and lone surrogates are no JSON, but in the values of keys that nobody
// reads they do not cost the row.
// Not here: the values that are read (row_reader.h).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "memory/base/parallel.h"

namespace spillway {

// Returns the line with 0 and U+FFFD in place of such values, of the same length in bytes; nothing if it has none of them.
// `reads` gets one key of the line's object and the list of all its keys.
std::optional<std::string> with_unread_values_mended(
    std::string_view line, FunctionRef<bool(std::string_view key, const std::vector<std::string_view>& keys)> reads);

}  // namespace spillway
