// Which device a directory is on, by a name that stays when the machine starts anew.
// Not here: what the device can do (probe.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace spillway {

// A line of /proc/self/mountinfo.
struct Mount {
  std::string point, type, source;
  std::uint32_t major = 0, minor = 0;
};
// The mount that an absolute path without links lies on: of those whose point holds it the longest, and of these the last.
std::optional<Mount> mount_of(std::string_view mountinfo, std::string_view path);

// Of a directory, which need not be there yet: that of the nearest one above it. Partitions of a drive are the drive. What lies
// on no drive of this machine (another machine's file system, memory) is named by its source. Never empty.
std::string device_of(const std::string& directory);

}  // namespace spillway
