// A function that runs two independent parts of a search: the planner itself knows no threads, and its plans do not depend on
// them.
#pragma once

#include <functional>

namespace spillway {

// Runs both functions to their ends, in any order or at once.
using PairRunner = std::function<void(const std::function<void()>&, const std::function<void()>&)>;
inline void one_after_the_other(const std::function<void()>& first, const std::function<void()>& second) {
  first();
  second();
}

}  // namespace spillway
