// A unit's compiled code: a list of kernel calls for each of its passes. Units of the same shape share one.
// Not here: what a unit needs and costs (memory/plan/unit.h), when it runs (offload/), who runs the lists (backend.h).
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "memory/plan/unit.h"
#include "models/kernels.h"

namespace spillway {

// The lists name values by their index in Unit::forward or in Unit::backward.
enum class Pass : std::uint8_t {
  forward,
  recompute,  // the part of the forward that makes Unit::saved; other values that it writes are null
  backward,
  forward_in_pieces,   // for units with a saved_piece whose saved values are not kept: those are room for one piece
  backward_in_pieces,  // makes the saved values itself
};
inline constexpr int kPasses = 5;

struct UnitCode {
  std::array<CallList, kPasses> lists;
  const CallList& operator[](Pass pass) const { return lists[static_cast<std::size_t>(pass)]; }
  CallList& operator[](Pass pass) { return lists[static_cast<std::size_t>(pass)]; }
  friend bool operator==(const UnitCode&, const UnitCode&) = default;
};

// Numbers that no step changes, at the same place in every plan of the model.
struct Constants {
  Bytes bytes = 0;
  std::function<void(std::span<std::byte>)> fill;
};

// A model compiled for one micro-batch shape: the description that the planner reads, and beside each unit its code.
struct CompiledModel {
  UnitGraph graph;
  std::vector<std::shared_ptr<const UnitCode>> code;  // one per graph.units; null where this version only plans the unit
  Constants constants;
};

// How the head goes through the vocabulary. The two modes that give a loss give the same bits.
enum class HeadMode : std::uint8_t {
  tiled,   // one unit per vocabulary tile: the forward computes a tile's logits, and so does the backward unless they are kept
  fused,   // one unit with all tiles resident: logits of a strip of rows are computed once; loss and gradient in the backward
  logits,  // one unit per vocabulary tile that only leaves the logits of the row that is asked for: no loss, no backward
};

}  // namespace spillway
