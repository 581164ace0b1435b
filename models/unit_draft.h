// The draft of a unit: its passes as kernels with places. compile_unit() derives the rest: the values that a pass uses, its work,
// where its workspace lies, and the kernels that recompute saved values.
// Not here: the units (attention.h, mlp.h, ...), what the kernels are (kernels.h).
#pragma once

#include <functional>
#include <set>
#include <vector>

#include "models/unit_code.h"

namespace spillway {

// A closed bound of the scratch that a kernel may use on the machine that is planned for.
using ScratchBound = std::function<Bytes(const Kernel&)>;

// Kernels in their order. Values are named by their index in the graph.
class PassDraft {
 public:
  // Room in the workspace from the first kernel that names it to the last; rooms that never live together share their bytes.
  Place room(Bytes bytes);
  void add(Kernel kernel) { kernels_.push_back(std::move(kernel)); }
  bool is_empty() const { return kernels_.empty(); }

  std::vector<Kernel>& kernels() { return kernels_; }
  std::vector<Bytes>& rooms() { return rooms_; }

 private:
  std::vector<Kernel> kernels_;
  std::vector<Bytes> rooms_;
};

struct UnitDraft {
  // The author gives name, blocks, gradient_blocks, role, saved, saved_piece and looks_up.
  Unit unit;
  PassDraft forward, backward;
  PassDraft forward_in_pieces, backward_in_pieces;  // for units with a saved_piece
};

// Leaves out the kernels of a unit's backward that nobody needs, and saved values that are then not read: what such kernels write
// is no gradient, no control word, no wanted value and nothing that other kernels read.
void keep_wanted(UnitDraft& draft, const std::set<int>& wanted_values);

inline Place value_place(int value) { return {.space = Space::value, .index = value}; }

// Fills in the unit and returns its code.
UnitCode compile_unit(UnitDraft& draft, const ScratchBound& scratch);

}  // namespace spillway
