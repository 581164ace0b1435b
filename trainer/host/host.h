// The cores, memory and threads that this host offers to the process, within its affinity, control groups and ulimit.
#pragma once

#include <string>

#include "memory/base/types.h"

namespace spillway {

// Files through which the system describes control groups; tests use their own.
struct ControlGroups {
  std::string of_process = "/proc/self/cgroup";
  std::string root = "/sys/fs/cgroup";
};

// Number of cores that the process may use: the cores of its affinity, or fewer if its control group has a CPU time quota. At
// least 1.
int usable_threads(const ControlGroups& groups = {});
// Number of cores of the host, or of the container that this process is in. At least 1.
int cores_of_host();
// True where this process may use some of these cores alone, as launchers bind it.
bool is_bound_to_cores();

// CPU time that the control groups above the process grant it, in cores; 0 if there is no limit.
double core_quota(const ControlGroups& groups = {});

// Bytes that the process may still allocate: the least of the kernel's estimate and of what its control groups and `ulimit -v`
// still allow.
Bytes available_memory();

// Throws a BudgetError that names the limit if the process cannot have `count` more threads at the same time.
void require_threads(int count, const ControlGroups& groups = {});

// The limits that are set on this process, with their names: "`ulimit -v` 4000000 KiB, pids.max 30"; empty if none is set.
std::string limits_in_words();
// The memory limits alone, in the same form.
std::string memory_limits_in_words();

// Resident memory outside the plan's tiers (code, libraries, buffers of the data reader): the stated process overhead.
inline constexpr Bytes kProcessOverhead = 150 * kMiB;

}  // namespace spillway
