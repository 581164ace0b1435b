#include "trainer/host/host.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "memory/base/error.h"
#include "tests/trainer/temporary_directory.h"

namespace spillway {
namespace {

// Control groups as the kernel shows them, in files of the test.
class Groups {
 public:
  ControlGroups of(const std::string& process) const {
    return {.of_process = directory_.file("self", process), .root = directory_.path() + "/cgroup"};
  }
  void write(const std::string& group, const std::string& name, const std::string& content) const {
    std::filesystem::create_directories(directory_.path() + "/cgroup/" + group);
    directory_.file("cgroup/" + group + "/" + name, content);
  }

 private:
  TemporaryDirectory directory_;
};

TEST(Host, AQuotaOfTheSecondVersion) {
  const Groups groups;
  const ControlGroups here = groups.of("0::/pod/container\n");
  EXPECT_EQ(core_quota(here), 0);
  groups.write("pod/container", "cpu.max", "max 100000\n");
  EXPECT_EQ(core_quota(here), 0);
  groups.write("pod", "cpu.max", "300000 100000\n");
  EXPECT_EQ(core_quota(here), 3) << "limits hold along the path";
  groups.write("pod/container", "cpu.max", "100000 100000\n");
  EXPECT_EQ(core_quota(here), 1);
  EXPECT_EQ(usable_threads(here), 1);
  groups.write("pod/container", "cpu.max", "20000 100000\n");
  EXPECT_EQ(usable_threads(here), 1) << "at least one";
  // Inside a container its own group is the root.
  groups.write("", "cpu.max", "100000 100000\n");
  EXPECT_EQ(core_quota(groups.of("0::/\n")), 1);
}

TEST(Host, AQuotaOfTheFirstVersion) {
  const Groups groups;
  for (const std::string mount : {"cpu", "cpu,cpuacct"}) {
    const ControlGroups here = groups.of("5:memory:/a\n4:cpu,cpuacct:/docker/b\n");
    groups.write(mount + "/docker/b", "cpu.cfs_period_us", "50000\n");
    groups.write(mount + "/docker/b", "cpu.cfs_quota_us", "-1\n");
    EXPECT_EQ(core_quota(here), 0);
    groups.write(mount + "/docker/b", "cpu.cfs_quota_us", "50000\n");
    EXPECT_EQ(core_quota(here), 1);
    EXPECT_EQ(usable_threads(here), 1);
    groups.write(mount + "/docker/b", "cpu.cfs_quota_us", "-1\n");
  }
}

TEST(Host, ThreadsThatAControlGroupLeaves) {
  const Groups groups;
  const ControlGroups here = groups.of("3:pids:/x\n0::/y\n");
  EXPECT_NO_THROW(require_threads(14, here));
  groups.write("pids/x", "pids.max", "max\n");
  groups.write("pids/x", "pids.current", "7\n");
  EXPECT_NO_THROW(require_threads(14, here));
  groups.write("pids/x", "pids.max", "20\n");
  EXPECT_NO_THROW(require_threads(13, here));
  EXPECT_THROW(require_threads(14, here), BudgetError);
  groups.write("y", "pids.max", "9\n");
  groups.write("y", "pids.current", "11\n");
  EXPECT_THROW(require_threads(1, here), BudgetError);
}

TEST(Host, ThreadsThatCannotBeMadeAreRefusedByTheLimit) {
  EXPECT_NO_THROW(require_threads(4));
  EXPECT_GE(usable_threads(), 1);
}

}  // namespace
}  // namespace spillway
