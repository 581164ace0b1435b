// The header of one safetensors file: an 8-byte length, then JSON that says where each tensor lies. Checked to the last byte.
// Not here: the data (safetensors.h), shards and their index.
#pragma once

#include <string_view>
#include <vector>

#include "files/posix_file.h"
#include "files/safetensors.h"

namespace spillway {

// The format's own limit.
inline constexpr Bytes kMaxSafetensorsHeader = 100'000'000;

// Tensors are in the order of their offsets, which cover the file's data without gap or overlap and count from the start of the
// file.
std::vector<StoredTensor> read_safetensors_header(const PosixFile& file);

}  // namespace spillway
