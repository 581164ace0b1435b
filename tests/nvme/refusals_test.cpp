// The store's behaviour where the system refuses io_uring, direct I/O, locked memory, or the directory to this user.
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>

#include "nvme/store.h"
#include "tests/nvme/store_fixture.h"

namespace spillway {
namespace {

// From here on the process gets `error` for the system call, if its arguments match these.
struct RefusedArguments {
  unsigned least_1 = 0, most_1 = ~0U;  // range of argument 1
  unsigned mask_2 = 0;                 // any of these bits in argument 2; 0: any value
};

bool refuse_system_call(unsigned number, unsigned error, const RefusedArguments& of = {}) {
  const unsigned mask_of_argument_2 = of.mask_2;
  sock_filter with_mask[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 6),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args) + 8),
      BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, of.least_1, 0, 4),
      BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, of.most_1, 3, 0),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args) + 16),
      BPF_JUMP(BPF_JMP | (mask_of_argument_2 ? BPF_JSET : BPF_JGE) | BPF_K, mask_of_argument_2, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{.len = 9, .filter = with_mask};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

class StoreRefusals : public StoreFixture {
 protected:
  // Runs `act` in a child, so that what it gives up is given up only there. Success is true.
  void in_child(const std::function<bool()>& act) {
    const pid_t child = fork();
    if (child == 0) {
      bool good = false;
      try {
        good = act();
      } catch (const std::exception& error) {
        messages_.emplace_back(error.what());
      }
      for (const std::string& message : messages_) fprintf(stderr, "  %s\n", message.c_str());
      _exit(good ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }

  bool round_trip(Store& store, IoQueueKind expected, std::span<const std::span<std::byte>> registered = {}) {
    const Buffer own(store.bytes());
    const IoSegment all{0, registered.empty() ? own.data() : registered[0].data(), store.bytes()};
    StoreChannel writer = store.open_channel({.registered = registered});
    StoreChannel reader = store.open_channel({.registered = registered});
    fill(all);
    writer.write({&all, 1});
    std::fill_n(all.memory, all.bytes, std::byte{0});
    reader.read({&all, 1});
    return first_wrong(all) == -1 && writer.kind() == expected && reader.kind() == expected;
  }
};

TEST_F(StoreRefusals, io_uring_refused_threads_take_over_and_one_message_says_so) {
  in_child([&] {
    if (!refuse_system_call(SYS_io_uring_setup, EPERM)) return false;
    StoreOptions given = options(2, 4 * kMiB);
    {
      Store store(given);
      if (!round_trip(store, IoQueueKind::threads)) return false;
    }
    if (messages_.size() != 1 || messages_[0].find("io_uring is refused") == std::string::npos) return false;
    messages_.clear();
    given.queue = IoQueueKind::io_uring;
    const std::string message = message_of<IoError>([&] {
      Store store(given);
      store.open_channel({.registered = {}});
    });
    return message.find("Operation not permitted") != std::string::npos && empty(given.directories[0].path);
  });
}

TEST_F(StoreRefusals, direct_io_refused_the_page_cache_takes_part_and_one_message_says_so) {
  in_child([&] {
    // In fcntl(fd, F_SETFL, flags) argument 2 is the flags; lock calls have an address there.
    if (!refuse_system_call(SYS_fcntl, EINVAL, {.least_1 = F_SETFL, .most_1 = F_SETFL, .mask_2 = O_DIRECT})) return false;
    Store store(options(1, 4 * kMiB));
    return round_trip(store, IoQueueKind::io_uring) && messages_.size() == 1 &&
           messages_[0].find("refuses direct I/O") != std::string::npos;
  });
}

TEST_F(StoreRefusals, locked_memory_refused_costs_nothing_but_time) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give up its rights";
  const StoreOptions given = options(1, 16 * kMiB);
  std::filesystem::permissions(root_, std::filesystem::perms::all);
  std::filesystem::permissions(given.directories[0].path, std::filesystem::perms::all);
  in_child([&] {
    const rlimit none{.rlim_cur = 64 * 1024, .rlim_max = 64 * 1024};
    if (setrlimit(RLIMIT_MEMLOCK, &none) != 0 || setresuid(65534, 65534, 65534) != 0) return false;
    Store store(given);
    const Buffer memory(store.bytes());
    const std::span<std::byte> arena = memory.span();
    return round_trip(store, IoQueueKind::io_uring, {&arena, 1}) && messages_.empty();
  });
}

TEST_F(StoreRefusals, threads_refused_end_the_channel_and_not_the_process) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give up its rights";
  StoreOptions given = options(1, kMiB);
  given.queue = IoQueueKind::threads;
  std::filesystem::permissions(root_, std::filesystem::perms::all);
  std::filesystem::permissions(given.directories[0].path, std::filesystem::perms::all);
  in_child([&] {
    const rlimit few{.rlim_cur = 4, .rlim_max = 4};  // processes of this user, who has no other
    if (setrlimit(RLIMIT_NPROC, &few) != 0 || setresuid(65534, 65534, 65534) != 0) return false;
    Store store(given);
    const std::string message = message_of<IoError>([&] { store.open_channel({.registered = {}}); });
    sigset_t blocked;
    pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
    messages_.push_back(message);
    return message.find("that NVMe requests need could not be started: Resource temporarily unavailable") != std::string::npos &&
           sigismember(&blocked, SIGINT) == 0;
  });
}

TEST_F(StoreRefusals, a_directory_of_somebody_else) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give up its rights";
  const StoreOptions given = options(1, kMiB);
  std::filesystem::permissions(root_, std::filesystem::perms::all);
  in_child([&] {
    if (setresuid(65534, 65534, 65534) != 0) return false;
    const std::string message = message_of<IoError>([&] { Store store(given); });
    return message.find("d0: cannot write there: Permission denied") != std::string::npos;
  });
}

}  // namespace
}  // namespace spillway
