// The pass that decides where each object of a task list is, and when. An object rests at its home; for stretches of the program
// it is held on the tiers where tasks use it. Each stretch, a residency, has a buffer. Before it the object is fetched from the
// next tier towards its home, and behind its last change it is saved there. Each fetch and save is itself a use of the object on
// that tier, and so on, link by link, to the home.
//
//   home ──fetch──► staging ──fetch──► where it is used
//        ◄──save──          ◄──save──
//
// An object that is saved keeps its buffer behind its last use for as long as it may still be on its way (reach.h, `behind`).
//
// A stretch ends before a use on another tier that it would not see, if that use changes the object, or reads it after this
// stretch has changed it: so no two tiers are read that differ.
//
// Example: residencies on the device of a block's objects, with state and waiting gradients on NVMe, the CPU as the device, and
// steps of one turn that update in the next forward:
//
//   object                   first use to last use            fetched before it in   saved behind its last change in
//   weight                   update's first piece, forward    kAlways                kWaitingUpdates
//   weight, again            backward, unless still there     kEveryTurn             -: nothing changes it
//   a piece of low, m or v   its update                       kWaitingUpdates        kWaitingUpdates
//   sum, exact form          first backward, gradient_finish  -: it is written       kEveryTurn, as it `lasts`
//   sum, compact form        the same                         -                      -: nobody wants it later
//   its rounding, compact    gradient_finish                  -                      kEveryTurn, as it `lasts`
//   a piece of what waited   its update, in the next run      kWaitingUpdates        -
//
// A unit's spilled values are saved in the forward and fetched for the backward, both kEveryTurn.
//
// Not here: the operations that move bytes (moves.h), what tasks there are (task_list.h).
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <vector>

#include "memory/passes/tasks.h"

namespace spillway {

// A moment of the program: at a task, or among the moves right before or after it.
struct Moment {
  enum class Side : std::uint8_t { before, at, after };
  int task = -1;
  Side side = Side::at;
  friend constexpr auto operator<=>(const Moment&, const Moment&) = default;
};

// Uses of an object that are served by one buffer of a tier.
struct Residency {
  int object = 0;
  Moment first, last;    // the first and the last use
  int last_change = -1;  // the last task at which, or after which, the object is changed here; -1: never
  Tier tier = Tier::device;
  TurnSet used_in = 0;     // the turns of all uses
  TurnSet fetched_in = 0;  // turns in which uses want its contents, which come from the next tier towards its home
  TurnSet saved_in = 0;    // turns in which it is saved to that tier, after the last change
  int earliest = 0;        // the first task before which a fetch may be issued: earlier there is nothing to fetch
  int fetch_at = 0;        // the fetch is issued before this task
  int free_after = 0;      // the buffer stays reserved through this task
  bool is_fetched() const { return fetched_in != 0; }
  bool is_saved() const { return saved_in != 0; }
};

class Residencies {
 public:
  Residencies(const TaskList& list, const Choices& choices);

  // Sorted by object, within one object by their last use.
  std::vector<Residency>& all() { return all_; }
  const std::vector<Residency>& all() const { return all_; }
  int first_of(int object) const { return first_[static_cast<std::size_t>(object)]; }
  int end_of(int object) const { return first_[static_cast<std::size_t>(object) + 1]; }
  // True when a task of the compute lane uses the object.
  bool is_computed_with(int object) const { return computed_with_[static_cast<std::size_t>(object)] != 0; }

 private:
  std::vector<Residency> all_;
  std::vector<int> first_;           // [objects + 1] index of the object's first residency in all_
  std::vector<char> computed_with_;  // [objects]
};

}  // namespace spillway
