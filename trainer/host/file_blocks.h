// Reads a file once, in blocks, so that memory use does not depend on the file's size.
// Not here: the meaning of the bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "files/posix_file.h"
#include "memory/base/parallel.h"

namespace spillway {

// Visits the blocks from `offset` to `end` in order. Every block but the last is a whole number of 8-byte words.
void for_each_block(const PosixFile& file, Bytes offset, Bytes end,
                    FunctionRef<void(Bytes offset, std::span<const std::byte> block)> visit);

}  // namespace spillway
