// The outline of a plan: a point of the search, all but what rests on which tier, which a filling decides.
// Not here: which outlines there are (outlines.h), a plan from one (filling.h).
#pragma once

#include <cstdint>

#include "memory/plan/plan.h"

namespace spillway {

// The kind that comes to rest on the device first where there is not room for both: saved values, or state. State of an
// embedding, whose gradient is complete last and whose weights are wanted first, delays the next step while it is on NVMe.
enum class Fill : std::uint8_t { saved_first, state_first };

// All choices but what rests on which tier.
struct Outline {
  int graph = 0;
  int group = 1, strips = 1;  // micro-batches that go through all units together, and the most strips that they are cut into
  UpdateTime update = UpdateTime::after;
  Saved spare = Saved::recompute;         // what happens to saved values that do not stay
  Saved spare_pieces = Saved::recompute;  // the same for units that would make them again piece by piece: the vocabulary's logits
  Boundary spare_boundary = Boundary::keep;
  int slots = 1;
  std::int64_t update_chunk = 0;
  Bytes ahead = 0;  // Choices::ahead
  Fill fill = Fill::saved_first;
  Tier update_tier = Tier::device;  // host, where the chain has one
  int deferred = 0;  // quarters of the elements whose update waits for the next forward, where it may; kDeferredWhole: all

  static constexpr int kDeferredWhole = 4;

  bool operator==(const Outline&) const = default;
  // True when both compute the same in the same order and keep the same activations, logits aside, whenever updates come.
  bool computes_alike(const Outline& other) const {
    return graph == other.graph && group == other.group && spare == other.spare && spare_boundary == other.spare_boundary;
  }
  // True when units and updates come in the same order.
  bool ordered_alike(const Outline& other) const {
    return group == other.group && update == other.update && update_tier == other.update_tier &&
           (deferred > 0) == (other.deferred > 0);
  }
  // True when both differ at most in how far ahead they read, in their pieces, their logits and their filling.
  bool same_kind(const Outline& other) const { return computes_alike(other) && ordered_alike(other); }
};

// The result of a filling. The filling of an alike outline of more layers begins there, so that it needs few plans.
struct Filled {
  Bytes bare = 0;    // bytes of the device that are taken when nothing rests there that need not
  Bytes ahead = 0;   // Outline::ahead
  double worth = 1;  // bytes that were dealt out for each byte of room that `bare` leaves
};

// The result of the search for an alike request; another search may begin there.
struct Like {
  Outline outline;
  Filled filled;
  const Plan* plan = nullptr;  // must outlive that search
};

}  // namespace spillway
