// Reads a SIZE of the command line: bytes, or a number with KiB, MiB, GiB or TiB.
// Not here: rounded sizes for people, in tables (quantity.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "memory/base/types.h"

namespace spillway {

// Memory takes binary units only, because 8GB may mean either. Drive ratings and file sizes may have decimal units, too.
enum class SizeUnits : std::uint8_t { binary, binary_and_decimal };

// Reads "4096", "512MiB" or "1.5GiB" (a fraction needs a unit and is rounded down to whole bytes). Returns nothing for any other
// text.
std::optional<Bytes> try_parse_size(std::string_view text, SizeUnits units = SizeUnits::binary);

// The same, but throws an InputError that names `what` (the flag), the text found and the sizes allowed.
Bytes parse_size(std::string_view text, std::string_view what, SizeUnits units = SizeUnits::binary);

// The shortest text that parse_size reads back as the same number: 1610612736 is "1536MiB".
std::string exact_size(Bytes bytes);

}  // namespace spillway
