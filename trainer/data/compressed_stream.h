// Decompression of gzip and Zstandard, in bounded memory however large the result is.
// Not here: which files are compressed (data_name.h).
#pragma once

#include <memory>
#include <string>

#include "trainer/data/byte_stream.h"
#include "trainer/data/data_name.h"

namespace spillway {

// The bytes of `stored`, decompressed; itself for Compression::none. Several gzip members or Zstandard frames one behind the
// other are one text, as gzip and zstd have it. `path` is for messages. Its read throws InputError for bytes of another kind,
// damaged ones, data that are cut short, and frames of Zstandard that need more than 128 MiB to be read.
std::unique_ptr<ByteStream> decompressed(std::unique_ptr<ByteStream> stored, Compression compression, const std::string& path);

}  // namespace spillway
