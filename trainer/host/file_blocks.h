// One pass over a file in blocks, so that memory does not depend on the file's size.
// Not here: what the bytes mean.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "files/posix_file.h"
#include "memory/parallel.h"

namespace spillway {

// Blocks from `offset` to `end`, in order; each but the last is a whole number of 8-byte words.
void for_each_block(const PosixFile& file, Bytes offset, Bytes end,
                    FunctionRef<void(Bytes offset, std::span<const std::byte> block)> visit);

}  // namespace spillway
