#include "trainer/host/interrupt.h"

#include <unistd.h>

#include <atomic>

#include "memory/error.h"

namespace spillway {
namespace {

// A signal handler is given nothing but the number, so what it notes must be reachable without a pointer.
std::atomic<int> interrupts_seen{0};
std::atomic<bool> handler_exists{false};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

extern "C" void note_signal(int signal) {
  const int before = interrupts_seen.fetch_add(1, std::memory_order_relaxed);
  if (signal == SIGINT && before > 0) ::_exit(kExitInterrupted);
}

}  // namespace

InterruptHandler::InterruptHandler() {
  SPILLWAY_CHECK(!handler_exists.exchange(true), "a second interrupt handler while the first lives");
  interrupts_seen.store(0, std::memory_order_relaxed);
  struct sigaction action = {};
  action.sa_handler = note_signal;
  action.sa_flags = SA_RESTART;  // reads and writes under way go on: the step is to be finished
  sigemptyset(&action.sa_mask);
  ::sigaction(SIGINT, &action, &former_int_);
  ::sigaction(SIGTERM, &action, &former_term_);
}

InterruptHandler::~InterruptHandler() {
  ::sigaction(SIGINT, &former_int_, nullptr);
  ::sigaction(SIGTERM, &former_term_, nullptr);
  handler_exists.store(false);
}

bool InterruptHandler::requested() const noexcept { return interrupts_seen.load(std::memory_order_relaxed) > 0; }

}  // namespace spillway
