// Everything that a plan may choose: order, tiers, times of updates, and where each block and each unit rests; and what follows
// from the choices alone.
// Not here: how they are found (search/planner.h), the program that they lead to (program.h, passes/schedule.h).
#pragma once

#include <algorithm>
#include <string>
#include <type_traits>
#include <vector>

#include "memory/base/types.h"
#include "memory/plan/block_state.h"
#include "memory/plan/chain.h"
#include "memory/plan/choice_names.h"
#include "memory/plan/sharding.h"
#include "memory/plan/square_tree.h"
#include "memory/plan/unit.h"

namespace spillway {

// Micro-batches of a turn: `count` of them from `first` on.
struct Strip {
  int first = 0, count = 1;
};

// The tiers on which a block's arrays rest between the operations that use them.
struct BlockPlace {
  Tier weight = Tier::device;
  Tier optimizer = Tier::device;  // all but the weight
  Tier gradient = Tier::device;   // while it waits for its update, or for the next micro-batch
  // yes, where updates run in the backward: this block's waits for the next forward instead. A drive that is busy all through the
  // backward has little to do in a forward that only reads weights. Not for blocks that are looked up, whose gradients come last
  // and whose weights are wanted first.
  Deferred deferred = Deferred::no;
  bool operator==(const BlockPlace&) const = default;
};

// The treatment of values that a unit writes in the forward, until its backward.
struct UnitPlace {
  Saved saved = Saved::keep;
  Boundary boundary = Boundary::keep;  // values that it hands to the next unit
  Tier spill = Tier::nvme;             // tier that spilled values go to
  bool operator==(const UnitPlace&) const = default;
};

// Set one member of all places, and count the places where it has a value.
template <typename Place, typename T>
void set_all(std::vector<Place>& places, T Place::* member, std::type_identity_t<T> value) {
  for (Place& place : places) place.*member = value;
}
template <typename Place, typename T>
std::ptrdiff_t count_of(const std::vector<Place>& places, T Place::* member, std::type_identity_t<T> value) {
  return std::ranges::count(places, value, member);
}

struct Choices {
  int graph = 0;                   // index into the candidates given to the planner (head tiled or fused)
  bool experts_in_groups = false;  // of a mixture: each group of a layer's experts is a unit, not the layer's mixture
  Chain chain = Chain::device_nvme;
  UpdateTime update = UpdateTime::after;
  // The tier where the optimizer runs, host or device: gradients and state come there. Both give the same bits. Without a host
  // between device and NVMe: the device.
  Tier update_tier = Tier::device;
  int micro_batches = 1;
  // Micro-batches that go through all units together, one turn: a divisor of `micro_batches`. 1 is horizontal order, all of them
  // are vertical order.
  int group = 1;
  int strip = 1;              // micro-batches of a group that one operation computes or moves; the last strip may have fewer
  bool clip = true;           // the global norm scales the update
  bool gives_logits = false;  // evaluation is asked for the logits of a row, too
  StateForm form = StateForm::exact;
  Sharding sharding;
  int slots = 1;  // places of state on NVMe: 1 or 2
  // Steps from one durable step to the next, where steps can be durable (makes_durable()); 0: none is.
  std::int64_t durable_every = 0;
  // Bytes of a tier that are kept for reading ahead and writing behind (passes/reach.h). 0: nothing is read ahead, and the pieces
  // of an update are not dealt out among tasks before it is due.
  Bytes ahead = 0;
  std::int64_t update_chunk = 2 << 20;  // elements of a block that one update takes where the state rests elsewhere
  std::vector<BlockPlace> blocks;       // [blocks of the graph]
  std::vector<UnitPlace> units;         // [units of the graph]

  bool operator==(const Choices&) const = default;
};

// Turns of a step; strips of a group, which are a unit's operations of one pass in each turn.
constexpr int turns_of(const Choices& choices) { return choices.micro_batches / choices.group; }
constexpr int strips_of(const Choices& choices) { return (choices.group + choices.strip - 1) / choices.strip; }
constexpr Strip strip_from(const Choices& choices, int first) { return {first, std::min(choices.strip, choices.group - first)}; }
// Sets the group, cut into at most so many strips.
inline constexpr int kMostStrips = 8;
inline void set_group(Choices& choices, int group, int most_strips = kMostStrips) {
  choices.group = group;
  choices.strip = (group + most_strips - 1) / most_strips;
}
// "horizontal", "vertical", "groups of 8"
std::string order_words(const Choices& choices);
// Bytes from one micro-batch's array of a strip to the next one's.
constexpr Bytes strip_stride(Bytes bytes) { return round_up(bytes, 64); }

// Turns whose times are kept: all up to three; of more, the first, the third and the last.
inline constexpr int kShownTurns = 3;
constexpr int shown_turns(int turns) { return std::min(turns, kShownTurns); }
constexpr int shown_turn(int index, int turns) { return turns <= kShownTurns ? index : index < 2 ? 2 * index : turns - 1; }

// True when updates run before the norm that scales them is known. Where the norm disagrees they are taken back, and the step is
// run again.
constexpr bool speculates(UpdateTime update, bool clip) { return update == UpdateTime::in_backward && clip; }
inline bool speculates(const Choices& choices) { return speculates(choices.update, choices.clip); }

// The lane that adds up, squares and rounds gradients, on the device that makes them, whoever updates. A device with memory of
// its own does it between passes on its compute lane; the CPU does it beside passes on the update lane.
constexpr Lane lane_of_gradients(Chain chain) { return has_host(chain) ? Lane::compute : Lane::update; }
inline Lane lane_of_updates(const Choices& choices) {
  return choices.update_tier == Tier::device ? lane_of_gradients(choices.chain) : Lane::update;
}

// True where updates run on memory that the host may read: they hash the state that they take and leave
// (offload/update_hashes.h). Elsewhere the lanes of NVMe hash what they move.
inline bool updates_see_state(const Choices& choices) { return !has_host(choices.chain) || choices.update_tier == Tier::host; }

// True when a unit's saved values last from its forward to its backward. In an evaluation, which has no backward, none do.
inline bool keeps_saved(const Choices& choices, int unit, bool evaluates) {
  return !evaluates && choices.units[static_cast<std::size_t>(unit)].saved != Saved::recompute;
}

// True when the unit's forward runs again right before its backward, for the saved values alone.
inline bool recomputes(const UnitGraph& graph, const Choices& choices, int unit) {
  const Unit& of = graph.units[static_cast<std::size_t>(unit)];
  return !keeps_saved(choices, unit, false) && !of.saved.empty() && of.saved_piece == 0;
}

// True when gradients wait for the next step: all of them, a block's, any.
constexpr bool defers_all(const Choices& choices) { return choices.update == UpdateTime::in_next_forward; }
inline bool defers(const Choices& choices, int block) {
  return defers_all(choices) || choices.blocks[static_cast<std::size_t>(block)].deferred == Deferred::yes;
}
inline bool defers_any(const Choices& choices) {
  return defers_all(choices) || count_of(choices.blocks, &BlockPlace::deferred, Deferred::yes) > 0;
}
// True when choices like these may have `deferred` blocks: the factor of an update must be known without the norm, and no step's
// state may have to be durable, as that of a step with deferred blocks is whole only in the next one.
constexpr bool may_defer_blocks(UpdateTime update, bool clip, int slots) {
  return update == UpdateTime::in_backward && !clip && slots == 1;
}

// The value of Choices::durable_every where nobody fixed it: each step is durable where that takes no copies; else durable steps
// are so rare that commits take no share of a step.
inline constexpr std::int64_t kSeldom = 1 << 20;
// True when a step has a commit: updates then leave the state of the step before untouched on NVMe, and write over it only in
// memory, which a commit copies.
bool makes_durable(const Choices& choices);

// True when a block's updates also sum the squares of its gradient, each stretch right before they use it: with a gradient_finish
// before them memory would be read twice. False where updates do not follow in the backward, where gradients are rounded or added
// up over ranks, where state has two slots (updates hash it), and where a device with memory of its own makes gradients.
bool squares_with_update(const Choices& choices, int block);

// The most bytes of weights that a unit takes; units that look up rows do not count.
Bytes largest_weights(const UnitGraph& graph, StateForm form);

// [blocks + 1] index of each block's first word in Plan::norm_buffer; last, that of the open nodes, kSquareNodesFromBegin words.
// A block has one word, its sum of squares; a frozen block has none. Where ranks have parts of blocks, a block has a word for
// each node of its tree that a part consists of; the nodes of all ranks make the sum. Open nodes are those of the block whose
// updates take its squares, from one of its updates to the next.
std::vector<std::int64_t> norm_words(const UnitGraph& graph, const Choices& choices);

}  // namespace spillway
