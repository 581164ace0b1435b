// Directories that are missing, in use, read-only, full, or left by a run that died.
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <fstream>
#include <thread>

#include "nvme/directory_lock.h"
#include "nvme/store.h"
#include "tests/nvme/store_fixture.h"

namespace spillway {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class StoreDirectories : public StoreFixture {
 protected:
  void refuse(StoreOptions given, const char* directory, const std::string& expected) {
    const std::string message = message_of<Error>([&] { Store store(std::move(given)); });
    EXPECT_THAT(message, AllOf(HasSubstr(directory), HasSubstr(expected)));
  }
};

// A file system of its own for a test, unmounted at the end. Needs the right to mount.
class Mount {
 public:
  Mount(const std::string& where, const std::string& tmpfs_options) : where_(where) {
    mounted_ = mount("tmpfs", where.c_str(), "tmpfs", 0, tmpfs_options.c_str()) == 0;
  }
  ~Mount() {
    if (mounted_) umount2(where_.c_str(), MNT_DETACH);
  }
  Mount(const Mount&) = delete;
  Mount& operator=(const Mount&) = delete;
  bool mounted() const { return mounted_; }
  bool make_read_only() const { return mount(nullptr, where_.c_str(), nullptr, MS_REMOUNT | MS_RDONLY, nullptr) == 0; }

 private:
  std::string where_;
  bool mounted_ = false;
};

TEST_F(StoreDirectories, missing_or_not_a_directory_or_twice) {
  StoreOptions given = options(2, kMiB);
  given.directories[1].path = root_ / "missing";
  EXPECT_THROW(Store store(given), InputError);
  refuse(given, "missing", "No such file or directory");
  EXPECT_TRUE(empty(given.directories[0].path));
  std::ofstream(root_ / "file") << "x";
  given.directories[1].path = root_ / "file";
  refuse(given, "file", "not a directory");
  given.directories[1].path = given.directories[0].path + "/../d0/.";
  refuse(given, "d0", "given twice");
  EXPECT_THROW(store_capacity(given.directories), InputError);
  EXPECT_TRUE(empty(given.directories[0].path));
}

TEST_F(StoreDirectories, not_writable_leaves_nothing_in_the_others) {
  StoreOptions given = options(1, kMiB);
  given.directories.push_back({"/proc/self", 0});  // refuses new files even to root
  EXPECT_THROW(Store store(given), IoError);
  refuse(given, "/proc/self", "cannot write there");
  EXPECT_TRUE(empty(given.directories[0].path));
}

TEST_F(StoreDirectories, read_only_file_system) {
  StoreOptions given = options(2, kMiB);
  const Mount mount(given.directories[1].path, "size=8m");
  if (!mount.mounted() || !mount.make_read_only()) GTEST_SKIP() << "no right to mount a file system here";
  refuse(given, "d1", "Read-only file system");
  EXPECT_TRUE(empty(given.directories[0].path));
}

TEST_F(StoreDirectories, a_full_disk_names_what_is_needed_and_leaves_nothing) {
  StoreOptions given = options(2, 20 * kMiB);
  const Mount mount(given.directories[1].path, "size=8m");
  if (!mount.mounted()) GTEST_SKIP() << "no right to mount a file system here";
  for (StoreDirectory& directory : given.directories) directory.cap_bytes = 16 * kMiB;
  EXPECT_THROW(Store store(given), IoError);
  refuse(given, "d1", "needs 10485760 bytes");
  for (const StoreDirectory& directory : given.directories) EXPECT_TRUE(empty(directory.path));
  // Without a cap the store takes what the small disk has, and the rest goes to the other.
  given.directories[1].cap_bytes = 0;
  EXPECT_LE(store_capacity(given.directories), 24 * kMiB);
  Store store(given);
  const Buffer memory(20 * kMiB);
  const IoSegment all{0, memory.data(), 20 * kMiB};
  fill(all);
  StoreChannel channel = store.open_channel({.registered = {}});
  channel.write({&all, 1});
  std::fill_n(memory.data(), memory.bytes(), std::byte{0});
  channel.read({&all, 1});
  EXPECT_EQ(first_wrong(all), -1);
}

// A store planned for a disk with hardly any room can be made there, together with its lock and its identity pages.
TEST_F(StoreDirectories, all_that_a_small_disk_is_said_to_have_can_be_taken) {
  for (const std::string size : {"64k", "256k", "1m"}) {
    StoreOptions given = options(1, kMiB);
    const Mount mount(given.directories[0].path, "size=" + size);
    if (!mount.mounted()) GTEST_SKIP() << "no right to mount a file system here";
    given.bytes = store_capacity(given.directories);
    ASSERT_GT(given.bytes, 0) << size;
    given.identity = StoreIdentity{.store_id = 7, .records_begin = 0, .place_bytes = kExtentAlignment, .run_directory = "/run"};
    EXPECT_NO_THROW(Store store(given)) << size;
  }
}

TEST_F(StoreDirectories, caps_that_are_too_small_are_a_budget_error) {
  StoreOptions given = options(2, 10 * kMiB);
  for (StoreDirectory& directory : given.directories) directory.cap_bytes = 4 * kMiB;
  EXPECT_EQ(store_capacity(given.directories), 8 * kMiB);
  EXPECT_THAT(message_of<BudgetError>([&] { Store store(given); }),
              HasSubstr("needs 10485760 bytes, its directories have 8388608"));
  for (const StoreDirectory& directory : given.directories) EXPECT_TRUE(empty(directory.path));
}

TEST_F(StoreDirectories, two_on_one_disk_share_its_free_space) {
  StoreOptions given = options(2, kMiB);
  const Bytes one = store_capacity(std::span(given.directories).first(1));
  const Bytes both = store_capacity(given.directories);
  EXPECT_LE(both, one + one / 10);
}

TEST_F(StoreDirectories, files_exist_at_full_size_and_go_with_the_store) {
  StoreOptions given = options(2, 8 * kMiB);
  const std::filesystem::path file = std::filesystem::path(given.directories[0].path) / "spillway-store.bin";
  {
    Store store(given);
    EXPECT_EQ(std::filesystem::file_size(file), 4 * kMiB);
    Store moved = std::move(store);
    EXPECT_TRUE(std::filesystem::exists(file));
  }
  for (const StoreDirectory& directory : given.directories) EXPECT_TRUE(empty(directory.path));
  try {
    Store store(given);
    throw IoError("something else fails");
  } catch (const IoError&) {
  }
  for (const StoreDirectory& directory : given.directories) EXPECT_TRUE(empty(directory.path));
}

TEST_F(StoreDirectories, a_second_store_is_refused_in_this_process_and_in_another) {
  const StoreOptions given = options(1, kMiB);
  const std::string owner = "process " + std::to_string(getpid()) + " on host ";
  Store store(given);
  refuse(given, "d0", "is in use by " + owner);
  const pid_t child = fork();
  if (child == 0) {
    // The end of a child's copy of the store must not remove the files either.
    const bool refused = message_of<IoError>([&] { Store second(given); }).find("in use by " + owner) != std::string::npos;
    {
      Store mine = std::move(store);
    }
    _exit(refused ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_FALSE(empty(given.directories[0].path));
}

// An owner comes and goes as if it were alone, while others of this process and of another ask without end.
TEST_F(StoreDirectories, who_asks_is_in_no_owners_way) {
  const std::string place = directory("d0");
  EXPECT_FALSE(DirectoryLock::in_use(place));
  EXPECT_TRUE(empty(place)) << "asking leaves nothing";
  const pid_t child = fork();
  if (child == 0) {
    alarm(120);  // in case the parent does not come to end it
    while (true) (void)DirectoryLock::in_use(place);
  }
  {
    std::atomic<bool> over{false};
    std::vector<std::jthread> askers;
    for (int i = 0; i < 3; ++i) {
      askers.emplace_back([&] {
        while (!over) (void)DirectoryLock::in_use(place);
      });
    }
    EXPECT_NO_THROW({
      for (int start = 0; start < 3000; ++start) {
        const DirectoryLock owner(place);
        if (!DirectoryLock::in_use(place)) ADD_FAILURE() << "an owner is not noticed";
      }
    });
    over = true;
  }
  kill(child, SIGKILL);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_FALSE(DirectoryLock::in_use(place));
}

TEST_F(StoreDirectories, an_owner_of_another_process_is_noticed_until_it_is_killed) {
  const std::string place = directory("d0");
  std::array<int, 2> ready{};
  ASSERT_EQ(pipe(ready.data()), 0);
  const pid_t child = fork();
  if (child == 0) {
    const DirectoryLock owner(place);
    alarm(120);
    (void)!write(ready[1], "x", 1);
    pause();
    _exit(0);
  }
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  EXPECT_TRUE(DirectoryLock::in_use(place));
  EXPECT_TRUE(DirectoryLock::in_use(place)) << "asking again";
  EXPECT_THAT(message_of<IoError>([&] { const DirectoryLock second(place); }),
              HasSubstr("in use by process " + std::to_string(child)));
  EXPECT_TRUE(DirectoryLock::in_use(place)) << "nor does one who was refused take it away";
  kill(child, SIGKILL);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_FALSE(DirectoryLock::in_use(place));
  const DirectoryLock next(place);
  EXPECT_THAT(next.dead_owner(), HasSubstr("process " + std::to_string(child)));
  for (const int end : ready) close(end);
}

TEST_F(StoreDirectories, what_a_killed_run_left_is_reclaimed_and_told) {
  const StoreOptions given = options(2, 8 * kMiB);
  const pid_t child = fork();
  if (child == 0) {
    Store store(given);
    kill(getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  ASSERT_FALSE(empty(given.directories[0].path));
  {
    Store store(given);
    ASSERT_EQ(messages_.size(), 2U);
    EXPECT_THAT(messages_[0], AllOf(HasSubstr("d0"), HasSubstr("removed 4194304 bytes"),
                                    HasSubstr("process " + std::to_string(child) + " on host")));
  }
  for (const StoreDirectory& directory : given.directories) EXPECT_TRUE(empty(directory.path));
}

TEST_F(StoreDirectories, space_of_a_killed_run_counts_as_free) {
  StoreOptions given = options(1, 5 * kMiB);
  const Mount mount(given.directories[0].path, "size=8m");
  if (!mount.mounted()) GTEST_SKIP() << "no right to mount a file system here";
  const Bytes before = store_capacity(given.directories);
  const pid_t child = fork();
  if (child == 0) {
    Store store(given);
    kill(getpid(), SIGKILL);
  }
  waitpid(child, nullptr, 0);
  EXPECT_GE(store_capacity(given.directories), before - 64 * kKiB);
  Store store(given);
}

}  // namespace
}  // namespace spillway
