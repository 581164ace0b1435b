// XXH3 of ranges of memory, and of the extents that a store remembers.
// Not here: which extents there are (commit_record.h), who checks them (offload/state_extents.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "memory/base/types.h"

namespace spillway {

// Uses the widest vectors that the processor has, which are several times faster than the baseline's.
std::uint64_t content_hash(std::span<const std::byte> content);

// The hash of an extent is that of the hashes of its pieces (the last may be shorter). So threads can hash pieces one by one, in
// any order, while they have them in their caches anyway; hashing is four times as fast there as from memory.
inline constexpr Bytes kHashedPieceBytes = 32 * kKiB;
inline constexpr Bytes kMostExtentBytes = 4 * kMiB;
std::uint64_t extent_hash(std::span<const std::byte> extent);
std::uint64_t extent_hash_of(std::span<const std::uint64_t> pieces);

// The hash of `bytes` zero bytes: files and arenas begin as zeros. It costs as much as hashing them.
std::uint64_t extent_hash_of_zeros(Bytes bytes);

// content_hash() of a content that comes in pieces of any size.
class ContentHasher {
 public:
  ContentHasher();
  ~ContentHasher();
  ContentHasher(ContentHasher&&) noexcept;
  ContentHasher& operator=(ContentHasher&&) noexcept;

  void add(std::span<const std::byte> piece);
  std::uint64_t take();  // the hash of all that was added; the next piece begins a new content

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace spillway
