// The mount that a path lies on, and the name of its device.
#include "trainer/machine/disk_device.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "tests/trainer/temporary_directory.h"
#include "trainer/machine/profile_file.h"

namespace spillway {
namespace {

constexpr const char* kMounts =
    "27 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw\n"
    "22 27 0:21 / /proc rw,relatime - proc proc rw\n"
    "30 27 8:1 / /data rw - xfs /dev/sda1 rw\n"
    "31 30 0:44 / /data/far rw shared:7 master:2 - nfs4 server:/export rw\n"
    "32 27 0:45 / /with\\040blank rw - tmpfs tmpfs rw\n"
    "33 27 8:17 / /data rw - btrfs /dev/sdb1 rw\n"
    "a line that is none\n";

TEST(DiskDevice, TheLongestMountHoldsAPath) {
  const auto source = [](const char* path) { return mount_of(kMounts, path)->source; };
  EXPECT_EQ(source("/srv/me"), "/dev/nvme0n1p2");
  EXPECT_EQ(source("/data/run"), "/dev/sdb1") << "mounted over the one before";
  EXPECT_EQ(source("/database"), "/dev/nvme0n1p2");
  EXPECT_EQ(source("/data/far/away"), "server:/export");
  EXPECT_EQ(source("/with blank/x"), "tmpfs");
  const std::optional<Mount> mount = mount_of(kMounts, "/data");
  EXPECT_EQ(mount->type, "btrfs");
  EXPECT_EQ(mount->major, 8u);
  EXPECT_EQ(mount->minor, 17u);
  EXPECT_FALSE(mount_of("", "/data"));
}

TEST(DiskDevice, DirectoriesOfOneFileSystemAreOnOneDevice) {
  const TemporaryDirectory first, second;
  const std::string device = device_of(first.path());
  EXPECT_FALSE(device.empty());
  EXPECT_EQ(device_of(second.path()), device);
  EXPECT_EQ(device_of(first.path() + "/not/yet/there"), device);
  std::filesystem::create_symlink("/proc", first.path() + "/link");
  EXPECT_NE(device_of(first.path() + "/link"), device);
  EXPECT_NE(device_of("/proc"), device);
}

// Another directory on the same drive needs no new measurement.
TEST(DiskDevice, ProfilesAreKeptByDevices) {
  const TemporaryDirectory cache, first, second;
  setenv("XDG_CACHE_HOME", cache.path().c_str(), 1);
  const NvmeDirectory one{first.path(), std::nullopt}, other{second.path(), kGiB}, elsewhere{"/proc", std::nullopt};
  EXPECT_EQ(profile_cache(2, {one}), profile_cache(2, {other}));
  EXPECT_NE(profile_cache(2, {one}), profile_cache(3, {one}));
  EXPECT_NE(profile_cache(2, {one}), profile_cache(2, {elsewhere}));
  EXPECT_NE(profile_cache(2, {one}), profile_cache(2, {one, other})) << "two files of one drive";
  EXPECT_NE(profile_cache(2, {one, elsewhere}), profile_cache(2, {elsewhere, one}));
  EXPECT_NE(profile_cache(2, {one}), profile_cache(2, {}));
  unsetenv("XDG_CACHE_HOME");
}

}  // namespace
}  // namespace spillway
