// Files that a failed fetch leaves in the place of the one that was wanted: a Git LFS pointer, a web page.
// Not here: what is wrong with the file itself.
#pragma once

#include <string>
#include <string_view>

#include "memory/base/types.h"

namespace spillway {

inline constexpr Bytes kPlaceholderBytes = 512;  // bytes at a file's beginning that tell a placeholder

// Throws InputError if `head`, the beginning of a file of `size` bytes, is that of such a placeholder.
void refuse_placeholder(const std::string& path, std::string_view head, Bytes size);

}  // namespace spillway
