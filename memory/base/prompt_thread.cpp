#include "memory/base/prompt_thread.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace spillway {
namespace {

// The kernel's struct sched_attr of 48 bytes (linux/sched/types.h), which newer C libraries declare as well.
struct SchedulingAttributes {
  std::uint32_t size = sizeof(SchedulingAttributes);
  std::uint32_t policy = 0;
  std::uint64_t flags = 0;
  std::int32_t nice = 0;
  std::uint32_t priority = 0;
  std::uint64_t runtime_ns = 0;  // for policies without deadlines: the length of a turn
  std::uint64_t deadline_ns = 0, period_ns = 0;
};
static_assert(sizeof(SchedulingAttributes) == 48);

constexpr std::uint64_t kTurn = 100'000;  // ns: the shortest turn that the kernel grants

}  // namespace

void make_thread_prompt() noexcept {
#ifdef SYS_sched_setattr
  SchedulingAttributes attributes;
  // Keeps the thread's own policy and niceness.
  if (syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) != 0) return;
  if (attributes.policy != SCHED_OTHER && attributes.policy != SCHED_BATCH) return;
  attributes.size = sizeof attributes;
  attributes.flags = 0;
  attributes.runtime_ns = kTurn;
  syscall(SYS_sched_setattr, 0, &attributes, 0);
#endif
}

}  // namespace spillway
