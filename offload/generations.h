// Decides which slot of the state on NVMe holds which step, and which step is durable: the slot that a run reads, the slot that
// its updates write, and the state that its commit makes durable. State in memory has one content, which a commit copies.
// Not here: the slots' bytes (memory/plan/plan.h), making them durable (committer.h).
//
//   next(): the present state ──updates──► the next one, which is the present from then on
//   take_due(): the present state, if it is due, counts as durable from then on
//   roll_back(): a step is not applied; the state that its run began with, or made of the step before, is the present, for good
//
// A single slot is written over. With two slots a step is written to the other one, so that the step before can be restored. But
// while the other slot holds the durable state, a state that is not durable is written over in its own slot: that of steps
// between durable ones, and of steps that go on while a state is held.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

namespace spillway {

// The state after a step, and the slot of its arrays that have two slots.
struct Generation {
  std::int64_t step = -1;  // -1: nobody has said
  int slot = 0;
};

class Generations {
 public:
  // `interval`: steps that it divides become durable by themselves; 0: none does.
  Generations(bool two_slots, std::int64_t interval) : two_slots_(two_slots), interval_(interval) {}

  const Generation& present() const noexcept { return present_; }
  // Begins with the durable state of a store.
  void begin_with(const Generation& durable) noexcept { present_ = durable_or_due_ = durable; }

  // The state after `step`, with the slot that the updates of a run write it to; it is the present from then on.
  Generation next(std::int64_t step) noexcept {
    const bool stays = !two_slots_ || (interval_ > 0 && present_.slot != durable_or_due_.slot);
    return present_ = {step, stays ? present_.slot : 1 - present_.slot};
  }
  // take_due(): the present state, if it is due to become durable. take(): the present state as that of `step`, due or not,
  // unless it is durable already.
  std::optional<Generation> take_due(bool is_held) noexcept {
    if (interval_ == 0 || is_held || is_over_ || present_.step < 0 || present_.step % interval_ != 0) return std::nullopt;
    return take(present_.step);
  }
  std::optional<Generation> take(std::int64_t step) noexcept {
    present_.step = step;
    if (durable_or_due_.step == step) return std::nullopt;
    return durable_or_due_ = present_;
  }

  void roll_back(const Generation& to) noexcept {
    present_ = to;
    is_over_ = true;
  }

 private:
  const bool two_slots_;
  const std::int64_t interval_;
  // The commit of the second may still be under way. Operations that write over its slot wait for the commit
  // (passes/access_map.h: AccessBook), so no function here waits.
  Generation present_, durable_or_due_{.slot = -1};
  bool is_over_ = false;
};

}  // namespace spillway
