// Allocations of the emulated device, and the check of every address that a kernel names.
// Not here: shared memory (shared_memory.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "tests/simt/machine.h"

namespace spillway::simt {

struct GlobalRange {
  std::uintptr_t begin = 0, end = 0;  // as kernels name it
  std::ptrdiff_t shift = 0;           // to where the bytes are
  // A sector: the last block that read or wrote it, of those that are counted; 0 none.
  std::unique_ptr<std::atomic<std::uint32_t>[]> read_by, written_by;
};

// What kernels may name from now on, and no more. While a launch runs none is made or ended.
void begin_allocation(std::byte* named, std::size_t bytes, std::byte* there);
void end_allocation(std::byte* named);
// The one that all of the bytes lie in, else null.
GlobalRange* allocation_of(std::uintptr_t address, std::size_t bytes);

inline constexpr std::uintptr_t kSectorBytes = 32;

}  // namespace spillway::simt
