// A step, a flush, a commit alone or a forward on its way through a program, in as many turns as it takes.
// Not here: what a step is told and finds out (step_control.h), how lanes go through a run (lane_runner.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

#include "memory/timeline.h"
#include "offload/bound_program.h"
#include "offload/executor.h"
#include "offload/generations.h"
#include "offload/step_control.h"

namespace spillway {

// One runs its tail while the next begins.
inline constexpr int kRunsUnderWay = 2;

struct Run {
  const BoundProgram* program = nullptr;
  int index = 0;                        // of the runs that may be under way
  std::int64_t number = 0;              // in the order of runs, over all of them
  bool evaluates = false;               // the loss alone, which may then be of any value
  std::optional<LogitsRequest> logits;  // wanted of an evaluation
  bool follows = false;                 // the run before was of the same program: waits on it mean something
  int turns = 1;                        // that it goes through the program
  TurnSet alone = 0;                    // kFlush, kCommitAlone: what it is there for; 0: a step, or a forward
  Generation before, after;             // the state that it begins with, and as its updates leave it
  int update_turn = 0;                  // that goes from the one to the other
  std::optional<Generation> commit;     // that it makes durable: in the run of a step, what the step before left
  int token_set = 0;
  By<Lane, std::uint32_t> base;         // operations each lane had completed when this run began
  StepControl* step = nullptr;          // of its own forward and backward
  StepControl* waiting_step = nullptr;  // of the one that left gradients: this run applies them; null: there are none

  std::atomic<int> lanes_left{0};
  std::vector<Span> spans;          // [shown_turns(turns), operations]
  double submitted_s = 0;           // since the runner was made, as spans are
  By<Lane, Bytes> moved;            // bytes; each written by its lane alone
  By<Lane, By<Tier, Bytes>> peaks;  // highest byte touched, the same

  // Of the step whose gradients an operation applies.
  const StepControl& applied_by(const Op& op) const { return applies_waiting_step(op) ? *waiting_step : *step; }
  TurnSet set_of(int turn) const { return alone != 0 ? alone : turn_set(turn, turns, waiting_step != nullptr); }
  int slot_before_in(int turn) const { return turn <= update_turn ? before.slot : after.slot; }
  int slot_after_in(int turn) const { return turn < update_turn ? before.slot : after.slot; }
};

}  // namespace spillway
