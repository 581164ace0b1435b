// CPU seconds of all threads of this process: the measure that other programs on the machine disturb least.
#pragma once

#include <ctime>

namespace spillway {

inline double cpu_seconds() {
  timespec time = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace spillway
