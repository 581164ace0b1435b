// Ctrl-C and SIGTERM: the first asks the run to finish its step and save (exit 130); a second SIGINT ends the process at once.
// Not here: what is saved.
#pragma once

#include <csignal>

namespace spillway {

// One at a time: signal handlers belong to the process. The former handlers come back with the destructor.
class InterruptHandler {
 public:
  InterruptHandler();
  ~InterruptHandler();
  InterruptHandler(const InterruptHandler&) = delete;
  InterruptHandler& operator=(const InterruptHandler&) = delete;

  // True once SIGINT or SIGTERM came. May be asked from any thread.
  bool requested() const noexcept;

 private:
  struct sigaction former_int_ = {};
  struct sigaction former_term_ = {};
};

}  // namespace spillway
