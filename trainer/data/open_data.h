// Opens data files and standard input, decompressed on the way. Not here: what they mean (text_documents.h).
#pragma once

#include <memory>
#include <string>

#include "trainer/data/byte_stream.h"
#include "trainer/data/data_name.h"

namespace spillway {

// What a file is: by its name, or, for standard input, by its first bytes.
DataName data_name_of(const std::string& path);
// As a message names it.
std::string shown_data_path(const std::string& path);

// The file as it lies there.
PosixFile open_stored(const std::string& path);
// Its bytes, decompressed.
std::unique_ptr<ByteStream> open_bytes(const std::string& path);
// The same, for random access: what is compressed becomes a file without a name in the directory for temporary files.
PosixFile open_for_random_access(const std::string& path);

}  // namespace spillway
