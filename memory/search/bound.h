// What a step of a plan's choices takes at least: lower bounds that every schedule of them obeys in as much device memory, of
// which the largest binds.
// Not here: a schedule's own time (simulate.h), how a bound is said (trainer/plan/bound_words.h).
#pragma once

#include <vector>

#include "memory/search/lane_speeds.h"

namespace spillway {

// lanes: what there is to do takes so long, in whatever order. phases: updates and their moves cannot begin before a moment of
// the step, and are wanted at another: they have only what lies between these to hide in, and the rest of the step comes on top.
enum class BoundKind : std::uint8_t { lanes, phases };

// What work takes at least, and which lanes make it so long: one that has so much to do, or some that slow each other.
struct LanesBound {
  double seconds = 0;
  LaneSet lanes = 0;
  Lane lane = Lane::compute;  // of these, the one that weighs most
};

struct Bound {
  BoundKind kind = BoundKind::lanes;
  double seconds = 0;
  LanesBound within;            // lanes: all of the step; phases: between the two moments
  LanesBound rest;              // phases: the rest of the step
  double compute_within_s = 0;  // phases: compute that the updates have to hide behind
  Bytes held_bytes = 0;  // phases: of their moves that device memory can hold at either moment, read before it or written after
  Lane lane() const { return within.lane; }
};

// How long lanes take for their work at least, beside each other as the machine lets them.
class LaneBounds {
 public:
  LaneBounds() = default;  // lanes without work
  explicit LaneBounds(const MachineProfile& machine);
  LanesBound of(const PerLane& busy_s) const;

 private:
  std::vector<PerLane> weights_;
};

// Work of a part of a step: all of it, what of it comes again with each micro-batch, and what device memory can take off it.
struct StepPart {
  PerLane all_s{}, repeated_s{}, held_s{};
};

// Of one plan; knows how its bound grows with the number of micro-batches.
class StepBound {
 public:
  StepBound() = default;  // of nothing
  StepBound(const Plan& plan, const UnitGraph& graph, const MachineProfile& machine);
  Bound of_step() const { return with_micro_batches(micro_batches_); }
  // Of a plan with the same choices for so many: what a step does once stays as it is.
  Bound with_micro_batches(double count) const;

 private:
  LaneBounds lanes_;
  double micro_batches_ = 1;
  Bytes held_bytes_ = 0;
  StepPart step_;
  struct Phases {
    StepPart within, rest;
  };
  std::vector<Phases> phases_;
};

}  // namespace spillway
