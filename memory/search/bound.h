// The least time of a step with a plan's choices, so that a report can say how far the plan is from it and which lane binds.
// No schedule of these choices is faster in as much memory.
// Not here: a schedule's own time (simulate.h), how a bound is said (trainer/plan/bound_words.h).
#pragma once

#include <vector>

#include "memory/search/lane_speeds.h"

namespace spillway {

// How long work takes at least: as long as one lane is busy with its own, or two that slow each other are with theirs.
struct LanesBound {
  double seconds = 0;
  LaneSet lanes = 0;          // one, or two
  Lane lane = Lane::compute;  // of these, the one that has more work
};

// The lanes bound a step as a whole. Where its updates wait for the norm, that may bind it more: the updates lie between the norm
// and the first use of the weights that they change, and the rest of the step comes on top.
struct Bound {
  double seconds = 0;
  bool by_norm = false;
  LanesBound within;            // by_norm: between these two moments; else the whole step
  LanesBound rest;              // by_norm: the rest of the step
  double compute_within_s = 0;  // by_norm: work of compute that the updates can hide behind
  Bytes held_bytes = 0;         // by_norm: room in memory for what is read before the norm or written after the first use
  Lane lane() const { return within.lane; }
};

// The least time that lanes need for their work, by pairs of them: how much one slows another is known of two at a time.
class LaneBounds {
 public:
  LaneBounds() = default;  // of lanes that do not slow each other
  explicit LaneBounds(const MachineProfile& machine);
  LanesBound of(const PerLane& busy_s) const;

 private:
  struct Pair {
    Lane first, second;
    double first_speed, second_speed;  // at most, while both run
  };
  std::vector<Pair> pairs_;
};

// Work of a step, or of a part of it, in seconds of each lane.
struct StepWork {
  PerLane all_s{};
  PerLane repeated_s{};  // of all_s: grows with the number of micro-batches
  PerLane held_s{};      // of all_s: moves that may lie outside the part, as memory can hold their bytes meanwhile
};

// The bound of one plan, for any number of micro-batches.
class StepBound {
 public:
  StepBound() = default;  // of nothing
  StepBound(const Plan& plan, const UnitGraph& graph, const MachineProfile& machine);
  Bound of_step() const { return with_micro_batches(micro_batches_); }
  // The choices stay as they are, and so does what a step does once.
  Bound with_micro_batches(double count) const;

 private:
  LaneBounds lanes_;
  double micro_batches_ = 1;
  StepWork step_;
  StepWork within_, rest_;  // empty where no update waits for the norm
  Bytes held_bytes_ = 0;
};

}  // namespace spillway
