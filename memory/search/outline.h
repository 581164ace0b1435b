// The outline of a plan: a point of the search but for what rests where, which a filling decides.
// Not here: which outlines there are (outlines.h), a plan from one (filling.h).
#pragma once

#include <cstdint>

#include "memory/plan.h"

namespace spillway {

// Which of two comes to rest on the device first where there is no room for both: saved values, or optimizer state. The state of
// an embedding, whose gradient is complete last and whose weights are wanted first, delays the next step while it is on NVMe.
enum class Fill : std::uint8_t { saved_first, optimizer_first };

// A point of the search but for what rests where.
struct Outline {
  int graph = 0;
  int group = 1, strips = 1;  // micro-batches that go through all units together, and into how many strips they are cut at most
  UpdateTime update = UpdateTime::after;
  Saved spare = Saved::recompute;         // what happens to saved values that do not stay
  Saved spare_pieces = Saved::recompute;  // the same, of units that would make them again piece by piece: the vocabulary's logits
  Boundary spare_boundary = Boundary::keep;
  int slots = 1;
  std::int64_t update_chunk = 0;
  Bytes ahead = 0;  // Choices::ahead
  Fill fill = Fill::saved_first;
  Tier update_tier = Tier::device;  // host, where the chain has one
  int deferred = 0;  // of kDeferredWhole: the share of the state whose update waits for the next forward, where it may

  static constexpr int kDeferredWhole = 4;

  bool operator==(const Outline&) const = default;
  // Whether the same is computed in the same order and the same activations are kept, but for logits, whenever updates come.
  bool computes_alike(const Outline& other) const {
    return graph == other.graph && group == other.group && spare == other.spare && spare_boundary == other.spare_boundary;
  }
  // Whether units and updates come in the same order.
  bool ordered_alike(const Outline& other) const {
    return group == other.group && update == other.update && update_tier == other.update_tier &&
           (deferred > 0) == (other.deferred > 0);
  }
  // Whether it differs in no more than how far ahead it reads, its pieces, its logits and its filling.
  bool same_kind(const Outline& other) const { return computes_alike(other) && ordered_alike(other); }
};

// Of a filling: where that of an alike outline of more layers begins, so that it needs few plans.
struct Filled {
  Bytes bare = 0;    // of the device, with nothing resting there that need not
  Bytes ahead = 0;   // of the outline
  double worth = 1;  // bytes that were dealt out for each that this left
};

// What the search for an alike request came to: where another may begin.
struct Like {
  Outline outline;
  Filled filled;
  const Plan* plan = nullptr;  // must outlive that search
};

}  // namespace spillway
