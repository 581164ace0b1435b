// The two extremes of how many micro-batches go through all units together.
#pragma once

#include "memory/plan/plan.h"

namespace spillway {

enum class Order : std::uint8_t { horizontal, vertical };  // all units for one micro-batch after the other; for all together

inline void set_order(Choices& choices, Order order) {
  set_group(choices, order == Order::horizontal ? 1 : choices.micro_batches);
}

}  // namespace spillway
