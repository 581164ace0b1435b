// Draws choices at random: one of some values, and the orders of a step.
// Not here: the tiers on which bytes rest, which each test draws for itself.
#pragma once

#include <array>
#include <cstdint>
#include <random>

#include "memory/plan/plan.h"

namespace spillway {

class Draw {
 public:
  explicit Draw(std::uint64_t seed) : random_(seed) {}

  template <typename T, typename... More>
  T any(T first, More... more) {
    const std::array values{first, static_cast<T>(more)...};
    return values[random_() % values.size()];
  }
  int up_to(int most) { return 1 + static_cast<int>(random_() % static_cast<unsigned>(most)); }

  // Draws when updates come, and how micro-batches go through the units.
  void order(Choices& choices) {
    choices.update = any(UpdateTime::after, UpdateTime::in_backward, UpdateTime::in_next_forward);
    choices.clip = choices.update != UpdateTime::in_backward;
    choices.micro_batches = any(1, 2, 3, 4, 6);
    choices.group = any(1, 2, choices.micro_batches);
    if (choices.micro_batches % choices.group != 0) choices.group = 1;
    choices.strip = up_to(choices.group);
  }

 private:
  std::mt19937_64 random_;
};

}  // namespace spillway
