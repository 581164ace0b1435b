// Ctrl-C, SIGTERM, SIGHUP (a terminal that was closed) and SIGUSR1 (a batch system's warning): the first asks the run to finish
// its step and save (exit 130); a second SIGINT ends the process at once.
// Not here: what is saved.
#pragma once

#include <array>
#include <csignal>
#include <string_view>

namespace spillway {

// Signal handlers belong to the process: while one of these lives, another changes nothing. The former handlers come back with
// the destructor of the first.
class InterruptHandler {
 public:
  InterruptHandler();
  ~InterruptHandler();
  InterruptHandler(const InterruptHandler&) = delete;
  InterruptHandler& operator=(const InterruptHandler&) = delete;

  // True once one of the signals came while a handler lived. May be asked from any thread.
  static bool requested() noexcept;
  // Of work that leaves nothing half done where it ends early: throws (exit 130) where it was asked to.
  static void stop_where_requested(std::string_view work);

 private:
  static constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};
  bool is_first_;
  std::array<struct sigaction, kSignals.size()> former_ = {};
};

}  // namespace spillway
