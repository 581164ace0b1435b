// Two parts of a search at once, for those who plan (memory/search/pair_runner.h): one on a thread of its own.
#pragma once

#include <functional>
#include <future>

namespace spillway {

// Returns when both have ended; throws what either threw.
inline void at_once(const std::function<void()>& first, const std::function<void()>& second) {
  std::future<void> beside = std::async(std::launch::async, second);
  first();
  beside.get();
}

}  // namespace spillway
