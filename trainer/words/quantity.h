// Numbers as people read them in tables, pages and messages.
// Not here: sizes of the command line, which are exact (size.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "memory/types.h"

namespace spillway {

std::string with_commas(std::int64_t value);  // "1,234,567"

// "1 unit", "2,048 units"; the plural is `plural` where an s at the end does not make it.
std::string counted(std::int64_t count, std::string_view what, std::string_view plural = {});

// Three digits and a decimal prefix: "8.03 T" of 8.03e12, "997 k", "12.0". A unit follows it: rounded_count(x) + "FLOP/s".
std::string rounded_count(double value);

// Three digits: "12.3 us", "4.56 ms", "1.20 s", "1,234 s".
std::string rounded_seconds(double seconds);

std::string rounded_size(Bytes bytes);  // "1.5 GiB"

// Without a fraction of a second, as one waits for it: "12s", "5m 03s", "1h 02m".
std::string rounded_time(double seconds);

// `text` after `indent` columns, its words broken into lines of at most `columns`; further lines begin with `indent` blanks.
std::string wrapped(std::string_view text, int indent, int columns);

}  // namespace spillway
