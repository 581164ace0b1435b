// SIZE of the command line: bytes, or a number with KiB, MiB, GiB or TiB.
// Not here: sizes in tables for people with rounded numbers (quantity.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "memory/types.h"

namespace spillway {

// Memory is counted in binary units only: who writes 8GB may mean either. Drives are rated, and files cut, in decimal ones, too.
enum class SizeUnits : std::uint8_t { binary, binary_and_decimal };

// "4096", "512MiB", "1.5GiB" (a fraction needs a unit and is rounded down to whole bytes). Nothing where it is none of these.
std::optional<Bytes> try_parse_size(std::string_view text, SizeUnits units = SizeUnits::binary);

// The same, or an InputError that names `what` (the flag), what was found and what is allowed.
Bytes parse_size(std::string_view text, std::string_view what, SizeUnits units = SizeUnits::binary);

// The shortest text that parse_size reads back to the same number: 1610612736 is "1536MiB".
std::string exact_size(Bytes bytes);

}  // namespace spillway
