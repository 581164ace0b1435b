#include "trainer/machine/disk_device.h"

#include <fmt/core.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <vector>

namespace spillway {
namespace {

namespace fs = std::filesystem;

// Decodes a name of mountinfo, which writes blanks as octal numbers.
std::string unescaped(std::string_view text) {
  std::string plain;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const auto digit = [&](std::size_t offset) {
      return at + offset < text.size() && text[at + offset] >= '0' && text[at + offset] <= '7' ? text[at + offset] - '0' : -1;
    };
    if (text[at] == '\\' && digit(1) >= 0 && digit(2) >= 0 && digit(3) >= 0) {
      plain += static_cast<char>(digit(1) * 64 + digit(2) * 8 + digit(3));
      at += 3;
    } else {
      plain += text[at];
    }
  }
  return plain;
}

bool holds(std::string_view point, std::string_view path) {
  if (point == "/" || path == point) return true;
  return path.starts_with(point) && path.size() > point.size() && path[point.size()] == '/';
}

// Format of a line: ID PARENT MAJOR:MINOR ROOT POINT OPTIONS [TAGS...] - TYPE SOURCE OPTIONS
std::optional<Mount> mount_in(const std::string& line) {
  std::istringstream words(line);
  std::vector<std::string> parts{std::istream_iterator<std::string>(words), {}};
  std::size_t dash = 6;
  while (dash < parts.size() && parts[dash] != "-") ++dash;
  if (dash + 2 >= parts.size()) return std::nullopt;
  Mount mount{.point = unescaped(parts[4]), .type = parts[dash + 1], .source = unescaped(parts[dash + 2])};
  char colon = 0;
  std::istringstream(parts[2]) >> mount.major >> colon >> mount.minor;
  return mount;
}

std::string content_of(const fs::path& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  while (!line.empty() && (line.back() == ' ' || line.back() == '\n')) line.pop_back();
  return line;
}

// The maker's name of the drive, which stays wherever the drive is plugged in; if there is none, its place and whatever else
// identifies it.
std::optional<std::string> drive_named(std::uint32_t major, std::uint32_t minor) {
  std::error_code error;
  fs::path drive = fs::canonical(fmt::format("/sys/dev/block/{}:{}", major, minor), error);
  if (error) return std::nullopt;
  if (fs::exists(drive / "partition", error)) drive = drive.parent_path();
  for (const char* file : {"wwid", "device/wwid", "dm/uuid", "md/uuid"}) {
    if (std::string name = content_of(drive / file); !name.empty()) return name;
  }
  return fmt::format("{} {}{}", drive.filename().string(), content_of(drive / "device/serial"), content_of(drive / "serial"));
}

std::optional<std::string> drive_of_mount(const Mount& mount) {
  struct stat status = {};
  // Some file systems have device numbers of their own and name the device that they are on.
  if (mount.source.starts_with('/') && ::stat(mount.source.c_str(), &status) == 0 && S_ISBLK(status.st_mode))
    return drive_named(major(status.st_rdev), minor(status.st_rdev));
  return mount.major != 0 ? drive_named(mount.major, mount.minor) : std::nullopt;
}

// Inside chroot() a directory may lie on no visible mount.
std::string device_by_number(fs::path path) {
  struct stat status = {};
  std::string asked = path.string();
  while (::stat(path.c_str(), &status) != 0 && path.has_relative_path()) path = path.parent_path();
  const auto drive = major(status.st_dev) != 0 ? drive_named(major(status.st_dev), minor(status.st_dev)) : std::nullopt;
  return drive ? "device " + *drive : "path " + asked;
}

std::string all_of(const char* file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

std::optional<Mount> mount_of(std::string_view mountinfo, std::string_view path) {
  std::optional<Mount> best;
  std::istringstream lines{std::string(mountinfo)};
  for (std::string line; std::getline(lines, line);) {
    std::optional<Mount> mount = mount_in(line);
    if (mount && holds(mount->point, path) && (!best || mount->point.size() >= best->point.size())) best = std::move(mount);
  }
  return best;
}

std::string device_of(const std::string& directory) {
  std::error_code error;
  fs::path path = fs::weakly_canonical(fs::absolute(directory, error), error);
  if (error) path = directory;
  const std::optional<Mount> mount = mount_of(all_of("/proc/self/mountinfo"), path.string());
  if (!mount) return device_by_number(path);
  if (const std::optional<std::string> drive = drive_of_mount(*mount)) return fmt::format("{} {}", mount->type, *drive);
  // "overlay" and "none" are no names: such mounts are identified by number, and measured again when the number changes.
  const bool named = mount->source.find_first_of("/:") != std::string::npos;
  return named ? fmt::format("{} {}", mount->type, mount->source)
               : fmt::format("{} {} {}:{}", mount->type, mount->source, mount->major, mount->minor);
}

}  // namespace spillway
