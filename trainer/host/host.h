// What this host offers to the process: cores and memory, as limited by affinity and control groups.
#pragma once

#include "memory/types.h"

namespace spillway {

// Cores that the process may use, at least 1.
int usable_threads();

// Bytes that the process may still take: the kernel's estimate, or what its control group leaves, whichever is less.
Bytes available_memory();

// Resident memory beside the plan's tiers (code, libraries, buffers of the data reader): the stated process overhead.
inline constexpr Bytes kProcessOverhead = 150 * kMiB;

}  // namespace spillway
