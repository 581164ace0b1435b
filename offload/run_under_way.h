// A run: a step, a flush, a commit alone or a forward on its way through a program, in as many turns as it takes.
// Not here: settings and results of a step (step_control.h), how lanes go through a run (lane_runner.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

#include "memory/plan/timeline.h"
#include "offload/bound_program.h"
#include "offload/generations.h"
#include "offload/step_control.h"
#include "offload/step_settings.h"

namespace spillway {

// Two runs: one runs its tail while the next begins.
inline constexpr int kRunsUnderWay = 2;

struct Run {
  const BoundProgram* program = nullptr;
  int index = 0;                        // its place among the runs that may be under way
  std::int64_t number = 0;              // its number in the order of all runs
  bool evaluates = false;               // computes the loss alone, which may then have any value
  std::optional<LogitsRequest> logits;  // the logits that are wanted of an evaluation
  bool follows = false;                 // the run before was of the same program: waits for it apply
  int turns = 1;                        // turns through the program
  TurnSet alone = 0;                    // kFlush or kCommitAlone: its only purpose; 0: a step, or a forward
  Generation before, after;             // the state that it begins with, and the state that its updates leave
  int update_turn = 0;                  // the turn that goes from `before` to `after`
  std::optional<Generation> commit;     // the state that it makes durable: in the run of a step, that of the step before
  int token_set = 0;
  By<Lane, std::uint32_t> base;         // operations of each lane in all runs before this one
  StepControl* step = nullptr;          // control block of its own forward and backward
  StepControl* waiting_step = nullptr;  // control block of the step whose waiting gradients this run applies; null: none wait

  std::atomic<int> lanes_left{0};
  std::vector<Span> spans;          // [shown_turns(turns), operations]
  double submitted_s = 0;           // since the runner was made, as spans are
  By<Lane, Bytes> moved;            // bytes moved; each lane writes its own alone
  By<Lane, By<Tier, Bytes>> peaks;  // highest byte touched; each lane writes its own alone

  // Control block of the step whose gradients an operation applies.
  const StepControl& applied_by(const Op& op) const { return applies_waiting_step(op) ? *waiting_step : *step; }
  TurnSet set_of(int turn) const { return alone != 0 ? alone : turn_set(turn, turns, waiting_step != nullptr); }
  int slot_before_in(int turn) const { return turn <= update_turn ? before.slot : after.slot; }
  int slot_after_in(int turn) const { return turn < update_turn ? before.slot : after.slot; }
};

}  // namespace spillway
