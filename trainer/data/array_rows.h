// The rows of a JSON array, a line each: "[{...}, {...}]" becomes "{...}\n{...}\n", so that who reads JSON lines reads arrays.
// Not here: whether a row is valid JSON (row_reader.h).
#pragma once

#include <memory>
#include <string>

#include "trainer/data/byte_stream.h"

namespace spillway {

// `path` is for messages. Line breaks within a row become spaces. Its read throws InputError if the array has no end, or other
// bytes behind it. Memory does not grow with the rows.
std::unique_ptr<ByteStream> rows_of_array(std::unique_ptr<ByteStream> array, const std::string& path);

// The bytes of a .json file as lines: those of its rows if it begins with "[", else as they are.
std::unique_ptr<ByteStream> lines_of_json(std::unique_ptr<ByteStream> bytes, const std::string& path, bool& is_array);

}  // namespace spillway
