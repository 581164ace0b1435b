// Runs two parts of a planner's search at the same time (memory/search/pair_runner.h): the second has a thread of its own.
#pragma once

#include <functional>
#include <future>

namespace spillway {

// Returns when both have ended. Rethrows an exception of either.
inline void at_once(const std::function<void()>& first, const std::function<void()>& second) {
  std::future<void> beside = std::async(std::launch::async, second);
  first();
  beside.get();
}

}  // namespace spillway
