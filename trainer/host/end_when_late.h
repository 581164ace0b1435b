// A limit for a call of a library that cannot be broken off, as MPI's start, which waits for ranks that may never come: the
// process ends where it has not returned in time. Not here: waiting that we do ourselves, which has deadlines
// (collectives/socket.h).
#pragma once

#include <chrono>
#include <thread>

#include "memory/base/error.h"

namespace spillway {

class EndWhenLate {
 public:
  // Unless it is destroyed within `limit`, a thread of its own prints `error` as the command prints errors, and ends the process
  // with its exit code. Nothing is unwound then: the call may hold any lock.
  EndWhenLate(std::chrono::milliseconds limit, Error error);

 private:
  std::jthread thread_;
};

}  // namespace spillway
