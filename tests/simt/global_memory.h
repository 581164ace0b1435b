// Allocations of the emulated device, and the check of every address that a kernel names.
// Not here: shared memory (shared_memory.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <shared_mutex>
#include <vector>

#include "tests/simt/machine.h"

namespace spillway::simt {

struct GlobalRange {
  std::uintptr_t begin = 0, end = 0;  // addresses as kernels name them
  std::ptrdiff_t shift = 0;           // from these addresses to the bytes
  // For each sector, the last of the counted blocks that read or wrote it; 0: none.
  std::unique_ptr<std::atomic<std::uint32_t>[]> read_by, written_by;
};

// Make and end memory that kernels may name; they wait for launches under way, of all devices.
void begin_allocation(std::byte* named, std::size_t bytes, std::byte* there);
void end_allocation(std::byte* named);
// As long as it lives, memory is neither made nor ended.
[[nodiscard]] std::shared_lock<std::shared_mutex> launch_under_way();
// The allocation in which all of the bytes lie, or null. Only while a launch is under way.
GlobalRange* allocation_of(std::uintptr_t address, std::size_t bytes);

inline constexpr std::uintptr_t kSectorBytes = 32;

}  // namespace spillway::simt
