// Finds the device that a directory is on, by a name that survives a restart of the machine.
// Not here: the speed of the device (probe.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace spillway {

// One line of /proc/self/mountinfo.
struct Mount {
  std::string point, type, source;
  std::uint32_t major = 0, minor = 0;
};
// The mount of an absolute path without links: among the mounts whose point holds the path, the one with the longest point, and
// the last of these.
std::optional<Mount> mount_of(std::string_view mountinfo, std::string_view path);

// The device of a directory. If the directory does not exist yet, its nearest existing parent counts. A partition gives its whole
// drive. A directory on no drive of this machine (another machine's file system, memory) gives its source. Never empty.
std::string device_of(const std::string& directory);

}  // namespace spillway
