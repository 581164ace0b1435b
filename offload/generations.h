// Which slot of the state on NVMe holds which step, and which of these is durable: what a run reads, what its updates write, and
// what its commit is to make durable. State in memory has one content, which a commit copies.
// Not here: the slots' bytes (memory/plan.h), making them durable (committer.h).
//
//   next(): the present state ──updates──► the next one, which is the present from then on
//   take_due(): the present state, where it is its turn, is durable, as far as anybody after this can tell
//   roll_back(): a step is not applied; what its run began with, or made of the step before, is the present, for good
//
// One slot is written over. Of two it is the other, so that a step can be gone back to; but what is not durable is written over
// in its place where the other one is: steps between durable ones, and those that go on while a state is held.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

namespace spillway {

// The state after a step, and where of it is what has two slots.
struct Generation {
  std::int64_t step = -1;  // -1: nobody has said
  int slot = 0;
};

class Generations {
 public:
  // `interval`: of the steps that become durable by themselves; 0: none does.
  Generations(bool two_slots, std::int64_t interval) : two_slots_(two_slots), interval_(interval) {}

  const Generation& present() const noexcept { return present_; }
  // That of a store which is gone on with.
  void begin_with(const Generation& durable) noexcept { present_ = durable_or_due_ = durable; }

  // Of a run whose updates leave the state after `step`: where they write it.
  Generation next(std::int64_t step) noexcept {
    const bool stays = !two_slots_ || (interval_ > 0 && present_.slot != durable_or_due_.slot);
    return present_ = {step, stays ? present_.slot : 1 - present_.slot};
  }
  // The present state, where it is its turn to become durable; and, whether it is or not, as that of `step`.
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
  // The second may be on its way still: what writes over its slot waits for the commit (passes/access_map.h: AccessBook), so
  // nobody here does.
  Generation present_, durable_or_due_{.slot = -1};
  bool is_over_ = false;
};

}  // namespace spillway
