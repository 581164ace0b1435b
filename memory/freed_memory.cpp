#include "memory/freed_memory.h"

#include <limits>

#include <malloc.h>

namespace spillway {

#ifdef __GLIBC__

FreedMemoryKept::FreedMemoryKept() {
  mallopt(M_MMAP_MAX, 0);  // what has a mapping of its own is unmapped when it is freed
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
}

FreedMemoryKept::~FreedMemoryKept() {
  constexpr int default_mappings = 65536, default_trim = 128 * 1024;
  mallopt(M_MMAP_MAX, default_mappings);
  mallopt(M_TRIM_THRESHOLD, default_trim);
  malloc_trim(0);
}

#else

FreedMemoryKept::FreedMemoryKept() = default;
FreedMemoryKept::~FreedMemoryKept() = default;

#endif

}  // namespace spillway
