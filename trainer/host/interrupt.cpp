#include "trainer/host/interrupt.h"

#include <unistd.h>

#include <atomic>

#include "memory/base/error.h"

namespace spillway {
namespace {

// A signal handler gets nothing but the signal's number, so the flags that it sets must be reachable without a pointer.
std::atomic<int> interrupts_seen{0};
std::atomic<bool> handler_exists{false};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

extern "C" void note_signal(int signal) {
  const int before = interrupts_seen.fetch_add(1, std::memory_order_relaxed);
  if (signal == SIGINT && before > 0) ::_exit(kExitInterrupted);
}

}  // namespace

InterruptHandler::InterruptHandler() : is_first_(!handler_exists.exchange(true)) {
  if (!is_first_) return;
  interrupts_seen.store(0, std::memory_order_relaxed);
  struct sigaction action = {};
  action.sa_handler = note_signal;
  action.sa_flags = SA_RESTART;  // reads and writes under way go on: the step has to finish
  sigemptyset(&action.sa_mask);
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    ::sigaction(kSignals[i], nullptr, &former_[i]);
    // A process under nohup ignores SIGHUP; that stays so.
    const bool is_ignored = kSignals[i] == SIGHUP && former_[i].sa_handler == SIG_IGN;
    if (!is_ignored) ::sigaction(kSignals[i], &action, nullptr);
  }
}

InterruptHandler::~InterruptHandler() {
  if (!is_first_) return;
  for (std::size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &former_[i], nullptr);
  interrupts_seen.store(0, std::memory_order_relaxed);
  handler_exists.store(false);
}

bool InterruptHandler::requested() noexcept { return interrupts_seen.load(std::memory_order_relaxed) > 0; }

void InterruptHandler::stop_where_requested(std::string_view work) {
  if (requested()) throw Error(kExitInterrupted, fmt::format("interrupted: {}", work), "");
}

}  // namespace spillway
