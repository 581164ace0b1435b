#include "trainer/host/host.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>
#include <thread>

namespace spillway {
namespace {

// The number that a one-line file holds; -1 where it holds none ("max").
Bytes number_in(const std::string& path) {
  std::ifstream file(path);
  Bytes number = -1;
  return file >> number ? number : -1;
}

// What the memory control groups above this process leave; the largest number where there is no limit.
Bytes left_by_control_groups() {
  Bytes left = std::numeric_limits<Bytes>::max();
  const auto consider = [&](const std::string& directory, const char* limit_name, const char* usage_name) {
    const Bytes limit = number_in(directory + "/" + limit_name), usage = number_in(directory + "/" + usage_name);
    if (limit < 0 || usage < 0 || limit > (Bytes{1} << 60)) return;
    // File pages in the group can be dropped; the kernel counts them as used.
    Bytes inactive_file = 0;
    std::ifstream statistics(directory + "/memory.stat");
    for (std::string key; statistics >> key;) {
      Bytes value = 0;
      statistics >> value;
      if (key == "inactive_file" || key == "total_inactive_file") inactive_file = std::max(inactive_file, value);
    }
    left = std::min(left, std::max<Bytes>(0, limit - usage + inactive_file));
  };
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    std::istringstream fields(line);
    std::string number, controllers, path;
    std::getline(fields, number, ':');
    std::getline(fields, controllers, ':');
    std::getline(fields, path);
    const bool unified = controllers.empty();
    if (!unified && ("," + controllers + ",").find(",memory,") == std::string::npos) continue;
    // Limits hold along the whole path; inside a container the path may name directories that are not mounted.
    for (std::string at = path;; at.resize(at.rfind('/'))) {
      if (unified) {
        for (const char* root : {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"}) consider(root + at, "memory.max", "memory.current");
      } else {
        consider("/sys/fs/cgroup/memory" + at, "memory.limit_in_bytes", "memory.usage_in_bytes");
      }
      if (at.empty() || at == "/") break;
    }
  }
  return left;
}

}  // namespace

int usable_threads() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

Bytes available_memory() {
  Bytes available = 0;
  std::ifstream file("/proc/meminfo");
  for (std::string key; file >> key;) {
    Bytes value = 0;
    std::string rest;
    file >> value;
    std::getline(file, rest);
    if (key == "MemAvailable:") available = value * kKiB;
  }
  return std::min(available, left_by_control_groups());
}

}  // namespace spillway
