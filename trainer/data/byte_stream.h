// Bytes from the first to the last, in bounded memory. Not here: which bytes (open_data.h), decompression (compressed_stream.h).
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "files/posix_file.h"

namespace spillway {

class ByteStream {
 public:
  virtual ~ByteStream() = default;
  // Fills the beginning of `out`, which is not empty, and returns how many bytes it has filled: none only at the end. Throws
  // InputError if the bytes are not what they should be.
  virtual std::size_t read(std::span<char> out) = 0;
};

// Up to `out.size()` bytes, fewer only at the end.
std::size_t read_fully(ByteStream& stream, std::span<char> out);

std::unique_ptr<ByteStream> bytes_of(PosixFile file);

}  // namespace spillway
