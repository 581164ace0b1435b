// Numbers as people read them in tables, pages and messages.
// Not here: sizes of the command line, which are exact (size.h); sizes and times of the live line (progress.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace spillway {

std::string with_commas(std::int64_t value);  // "1,234,567"

// "1 unit", "2,048 units"; the plural is `plural` where an s at the end does not make it.
std::string counted(std::int64_t count, std::string_view what, std::string_view plural = {});

// Three digits and a decimal prefix: "8.03 T" of 8.03e12, "997 k", "12.0". A unit follows it: rounded_count(x) + "FLOP/s".
std::string rounded_count(double value);

// Three digits: "12.3 us", "4.56 ms", "1.20 s", "1,234 s".
std::string rounded_seconds(double seconds);

// `text` after `indent` columns, its words broken into lines of at most `columns`; further lines begin with `indent` blanks.
std::string wrapped(std::string_view text, int indent, int columns);

}  // namespace spillway
