#include "memory/base/freed_memory.h"

#include <limits>

#include <malloc.h>

namespace spillway {

#ifdef __GLIBC__

FreedMemoryKept::FreedMemoryKept() {
  mallopt(M_MMAP_MAX, 0);  // an allocation with a mapping of its own would be unmapped when it is freed
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
}

FreedMemoryKept::~FreedMemoryKept() {
  // Once an option is set malloc no longer adapts, and would map anew each buffer above 128 KiB that a library's matrix product
  // packs into: a seventh of a step's processor time.
  constexpr int default_mappings = 65536, own_mapping = 8 << 20, kept = 16 << 20;
  mallopt(M_MMAP_MAX, default_mappings);
  mallopt(M_MMAP_THRESHOLD, own_mapping);
  mallopt(M_TRIM_THRESHOLD, kept);
  malloc_trim(0);
}

#else

FreedMemoryKept::FreedMemoryKept() = default;
FreedMemoryKept::~FreedMemoryKept() = default;

#endif

}  // namespace spillway
