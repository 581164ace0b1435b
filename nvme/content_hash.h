// XXH3 of a range of memory: what a store remembers of each extent that it holds.
// Not here: which extents there are (commit_record.h), who checks them (offload/extent_hashes.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace spillway {

// By the widest vectors that the processor has: several times faster than the baseline's.
std::uint64_t content_hash(std::span<const std::byte> content);

// Of so many zero bytes, as files and arenas begin. Costs as much as hashing them.
std::uint64_t content_hash_of_zeros(std::size_t bytes);

}  // namespace spillway
