// A thread that is made prompt keeps its policy and niceness, and has short turns where the kernel knows of them.
#include "memory/base/prompt_thread.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <thread>

namespace spillway {
namespace {

// The length of the calling thread's turns; 0 where the kernel does not say (before 6.12).
std::uint64_t turn_ns() {
  std::array<std::uint64_t, 16> attributes{};
  if (syscall(SYS_sched_getattr, 0, attributes.data(), sizeof attributes, 0) != 0) return 0;
  return attributes[3];  // struct sched_attr: size and policy, flags, niceness and priority, then this
}

TEST(PromptThread, HasShortTurnsAndNothingElseChanges) {
  std::uint64_t before = 0, after = 0;
  int policy = -1, nice = 0;
  std::thread thread([&] {
    setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), 3);
    before = turn_ns();
    make_thread_prompt();
    after = turn_ns();
    policy = sched_getscheduler(0);
    nice = getpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)));
  });
  thread.join();
  EXPECT_EQ(policy, SCHED_OTHER);
  EXPECT_EQ(nice, 3);
  if (before == 0) GTEST_SKIP() << "this kernel has no turns of its own for a thread";
  EXPECT_EQ(after, 100'000u);
  EXPECT_EQ(turn_ns(), before) << "only the thread that asked";
}

}  // namespace
}  // namespace spillway
