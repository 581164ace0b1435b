// Formats numbers as people read them, for tables, pages and messages.
// Not here: sizes on the command line, which are exact (size.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "memory/base/types.h"

namespace spillway {

std::string with_commas(std::int64_t value);  // "1,234,567"

// "1 unit", "2,048 units". Give `plural` if adding an s does not make it.
std::string counted(std::int64_t count, std::string_view what, std::string_view plural = {});

// Three digits and a decimal prefix: 8.03e12 is "8.03 T"; also "997 k", "12.0". The caller appends the unit: rounded_count(x) +
// "FLOP/s".
std::string rounded_count(double value);

// Three digits: "12.3 us", "4.56 ms", "1.20 s", "1,234 s".
std::string rounded_seconds(double seconds);

std::string rounded_size(Bytes bytes);  // "1.5 GiB"

// A duration in whole seconds, for people who wait: "12s", "5m 03s", "1h 02m".
std::string rounded_time(double seconds);

// Breaks `text` into lines of at most `columns`. The first line starts after `indent` columns; further lines begin with `indent`
// blanks.
std::string wrapped(std::string_view text, int indent, int columns);

}  // namespace spillway
