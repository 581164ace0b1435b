// What this host offers to the process: cores, memory and threads, as limited by affinity, control groups and ulimit.
#pragma once

#include <string>

#include "memory/types.h"

namespace spillway {

// Where the system tells of control groups; tests have their own.
struct ControlGroups {
  std::string of_process = "/proc/self/cgroup";
  std::string root = "/sys/fs/cgroup";
};

// Cores that the process may use: those of its affinity, or fewer where its control group has a quota of their time. At least 1.
int usable_threads(const ControlGroups& groups = {});

// Cores' worth of time that the control groups above the process grant it; 0 where there is no limit.
double core_quota(const ControlGroups& groups = {});

// Bytes that the process may still take: the kernel's estimate, or what its control group or `ulimit -v` leaves, whichever is
// less.
Bytes available_memory();

// Threads that the control groups above the process let it still make; a large number where there is no limit.
std::int64_t threads_left(const ControlGroups& groups = {});

// BudgetError, naming the limit, where the process cannot have so many threads more at once.
void require_threads(int count);

// The limits that are set on this process, with their names, as "`ulimit -v` 4,000,000 KiB, pids.max 30"; empty: none is.
std::string limits_in_words();
// Of these, those of memory.
std::string memory_limits_in_words();

// Resident memory beside the plan's tiers (code, libraries, buffers of the data reader): the stated process overhead.
inline constexpr Bytes kProcessOverhead = 150 * kMiB;

}  // namespace spillway
