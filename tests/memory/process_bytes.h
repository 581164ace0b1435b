// The memory of this process, as the system reports it.
#pragma once

#include <fstream>
#include <string>

#include "memory/base/types.h"

namespace spillway {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kCountsResidentBytes = false;  // the sanitizer's shadow memory is resident as well
#else
inline constexpr bool kCountsResidentBytes = true;
#endif

// `wanted`: a line of /proc/self/status in KiB, such as "VmRSS:"; -1 where there is none.
inline Bytes process_bytes(const std::string& wanted) {
  std::ifstream file("/proc/self/status");
  std::string line;
  while (std::getline(file, line)) {
    if (line.starts_with(wanted)) return std::stoll(line.substr(wanted.size())) * kKiB;
  }
  return -1;
}

}  // namespace spillway
