// Handles Ctrl-C, SIGTERM, SIGHUP (a closed terminal) and SIGUSR1 (a batch system's warning). The first signal asks the run to
// finish its step and save (exit code 130); a second SIGINT ends the process at once.
// Not here: what is saved.
#pragma once

#include <array>
#include <csignal>
#include <string_view>

namespace spillway {

// Signal handlers belong to the process: while one InterruptHandler lives, a second one changes nothing. The first one's
// destructor restores the former handlers.
class InterruptHandler {
 public:
  InterruptHandler();
  ~InterruptHandler();
  InterruptHandler(const InterruptHandler&) = delete;
  InterruptHandler& operator=(const InterruptHandler&) = delete;

  // Returns true once one of the signals came while a handler lived. Any thread may call it.
  static bool requested() noexcept;
  // Throws (exit code 130) if one of the signals came. For work that leaves nothing half done when it ends early.
  static void stop_where_requested(std::string_view work);

 private:
  static constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};
  bool is_first_;
  std::array<struct sigaction, kSignals.size()> former_ = {};
};

}  // namespace spillway
