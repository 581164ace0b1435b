#include "trainer/host/host.h"

#include <fmt/core.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <condition_variable>
#include <fstream>
#include <functional>
#include <limits>
#include <mutex>
#include <sstream>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include "memory/base/error.h"

namespace spillway {
namespace {

constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();

// The number in a one-line file; -1 if the file holds no number ("max").
std::int64_t number_in(const std::string& path) {
  std::ifstream file(path);
  std::int64_t number = -1;
  return file >> number ? number : -1;
}

enum class GroupVersion : std::uint8_t { v1, v2 };

// Calls `visit` with each directory that may limit `controller`. A limit on any directory of the path holds for the process;
// inside a container the path may name directories that are not mounted.
void for_each_group(const ControlGroups& groups, const std::string& controller,
                    const std::function<void(const std::string& directory, GroupVersion version)>& visit) {
  std::ifstream file(groups.of_process);
  for (std::string line; std::getline(file, line);) {
    std::istringstream fields(line);
    std::string number, controllers, path;
    std::getline(fields, number, ':');
    std::getline(fields, controllers, ':');
    std::getline(fields, path);
    const bool unified = controllers.empty();
    if (!unified && ("," + controllers + ",").find("," + controller + ",") == std::string::npos) continue;
    for (std::string at = path;; at.resize(at.rfind('/'))) {
      if (unified) {
        for (const char* mount : {"", "/unified"}) visit(groups.root + mount + at, GroupVersion::v2);
      } else {
        visit(groups.root + "/" + controller + at, GroupVersion::v1);
        if (controllers != controller) visit(groups.root + "/" + controllers + at, GroupVersion::v1);
      }
      if (at.empty() || at == "/") break;
    }
  }
}

// Bytes that the memory control groups above this process still allow; the largest number if there is no limit.
Bytes left_by_control_groups() {
  Bytes left = kNoLimit;
  for_each_group({}, "memory", [&](const std::string& directory, GroupVersion version) {
    const bool unified = version == GroupVersion::v2;
    const Bytes limit = number_in(directory + (unified ? "/memory.max" : "/memory.limit_in_bytes")),
                usage = number_in(directory + (unified ? "/memory.current" : "/memory.usage_in_bytes"));
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
  });
  return left;
}

std::int64_t limit_of(__rlimit_resource resource) {
  rlimit limit = {};
  const bool is_set = getrlimit(resource, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  return is_set ? static_cast<std::int64_t>(std::min<rlim_t>(limit.rlim_cur, kNoLimit)) : kNoLimit;
}

// Bytes that `ulimit -v` still allows.
Bytes left_of_address_space() {
  const Bytes limit = limit_of(RLIMIT_AS);
  if (limit == kNoLimit) return limit;
  const std::int64_t pages = std::max<std::int64_t>(0, number_in("/proc/self/statm"));
  return std::max<Bytes>(0, limit - pages * 4 * kKiB);
}

// The tightest pids.max, and the threads that it still allows.
struct PidsLimit {
  std::int64_t most = kNoLimit, left = kNoLimit;
};
PidsLimit pids_limit(const ControlGroups& groups) {
  PidsLimit found;
  for_each_group(groups, "pids", [&](const std::string& directory, GroupVersion) {
    const std::int64_t most = number_in(directory + "/pids.max"), now = number_in(directory + "/pids.current");
    if (most >= 0 && now >= 0 && most - now < found.left) found = {most, std::max<std::int64_t>(0, most - now)};
  });
  return found;
}

// Starts `count` threads that all wait until the last one exists, so that all exist at the same time.
void make_threads(int count) {
  std::mutex mutex;
  std::condition_variable changed;
  bool is_over = false;
  std::vector<std::thread> threads;
  const auto end = [&] {
    {
      const std::lock_guard lock(mutex);
      is_over = true;
    }
    changed.notify_all();
    for (std::thread& thread : threads) thread.join();
  };
  try {
    for (int i = 0; i < count; ++i) {
      threads.emplace_back([&] {
        std::unique_lock lock(mutex);
        changed.wait(lock, [&] { return is_over; });
      });
    }
  } catch (...) {
    end();
    throw;
  }
  end();
}

}  // namespace

double core_quota(const ControlGroups& groups) {
  double cores = 0;
  for_each_group(groups, "cpu", [&](const std::string& directory, GroupVersion version) {
    double quota = -1, period = 0;
    if (version == GroupVersion::v2) {
      std::ifstream file(directory + "/cpu.max");
      if (!(file >> quota >> period)) return;  // "max 100000"
    } else {
      quota = static_cast<double>(number_in(directory + "/cpu.cfs_quota_us"));
      period = static_cast<double>(number_in(directory + "/cpu.cfs_period_us"));
    }
    if (quota > 0 && period > 0 && (cores == 0 || quota / period < cores)) cores = quota / period;
  });
  return cores;
}

int usable_threads(const ControlGroups& groups) {
  cpu_set_t set;
  CPU_ZERO(&set);
  const bool is_known = sched_getaffinity(0, sizeof set, &set) == 0;
  const int cores = std::max(1, is_known ? CPU_COUNT(&set) : static_cast<int>(std::thread::hardware_concurrency()));
  // More threads than the quota has cores are all stopped together once the quota is used up: two threads that share the time of
  // one core are slower than one thread.
  const double quota = core_quota(groups);
  return quota > 0 ? std::clamp(static_cast<int>(std::lround(std::min(quota, 1e6))), 1, cores) : cores;
}

int cores_of_host() {
  const auto online = static_cast<int>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
  // The first process of a container has the cores of that: "Cpus_allowed: ff,ffffffff".
  std::ifstream file("/proc/1/status");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("Cpus_allowed:")) continue;
    int cores = 0;
    for (const char digit : line.substr(line.find(':') + 1)) {
      const std::size_t value = std::string_view("0123456789abcdef").find(digit);
      if (value != std::string_view::npos) cores += std::popcount(value);
    }
    return std::clamp(cores, 1, online);
  }
  return online;
}

bool is_bound_to_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) < cores_of_host();
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
  return std::min({available, left_by_control_groups(), left_of_address_space()});
}

void require_threads(int count, const ControlGroups& groups) {
  const auto refuse = [&](const std::string& why) {
    const std::string limits = limits_in_words();
    throw BudgetError(fmt::format("this run needs up to {} threads more, and {}{}", count, why,
                                  limits.empty() ? "" : fmt::format(" (limits: {})", limits)),
                      "Raise the limit (pids.max of the control group, `ulimit -u`, `ulimit -v`), or use fewer --threads.");
  };
  const PidsLimit pids = pids_limit(groups);
  if (pids.left < count) refuse(fmt::format("pids.max, {}, leaves {}", pids.most, pids.left));
  try {
    make_threads(count);
  } catch (const std::system_error& error) {
    refuse(fmt::format("the system refuses them: {}", error.code().message()));
  } catch (const std::bad_alloc&) {
    refuse("there is no memory for their stacks");
  }
}

std::string memory_limits_in_words() {
  std::string words;
  const auto add = [&](const std::string& text) { words += fmt::format("{}{}", words.empty() ? "" : ", ", text); };
  if (const std::int64_t limit = limit_of(RLIMIT_AS); limit != kNoLimit) add(fmt::format("`ulimit -v` {} KiB", limit / kKiB));
  if (const std::int64_t limit = limit_of(RLIMIT_DATA); limit != kNoLimit) add(fmt::format("`ulimit -d` {} KiB", limit / kKiB));
  return words;
}

std::string limits_in_words() {
  std::string words = memory_limits_in_words();
  const auto add = [&](const std::string& text) { words += fmt::format("{}{}", words.empty() ? "" : ", ", text); };
  if (const std::int64_t limit = limit_of(RLIMIT_NPROC); limit != kNoLimit) add(fmt::format("`ulimit -u` {}", limit));
  if (const std::int64_t most = pids_limit({}).most; most != kNoLimit) add(fmt::format("pids.max {}", most));
  return words;
}

}  // namespace spillway
