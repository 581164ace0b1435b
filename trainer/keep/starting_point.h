// Decides where a run begins: a pure function of what its directories contain and of what was asked.
// Not here: looking into the directories (checkpoint.h, durable_store.h), carrying out the decision (trainer/run/trainer.cpp).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace spillway {

// The step in the store of the run in --load.
struct StoredStep {
  std::int64_t step = 0;
  std::string place;  // for messages: the first of its directories
  bool is_of_this_model = true;
  bool lies_as_planned = false;      // the plan has the same state in the same places and keeps it durable
  std::optional<std::string> rival;  // another run directory that can go on with it, too: one of the two is a copy
};

// Everything that the run in --load left.
struct RunRemains {
  std::string run;                         // empty: no --load
  bool has_log = false;                    // it has at least one step
  std::optional<std::int64_t> checkpoint;  // step of the newest checkpoint
  std::optional<StoredStep> stored;
};

struct StartAsked {
  bool goes_on = false;  // in the run's own directory, --save; else a new run begins with its state
  std::int64_t train_iters = 0;
};

enum class StartKind : std::uint8_t {
  anew,           // from the model's weights
  at_checkpoint,  // from a checkpoint's file
  in_place,       // from the store, which stays the run's store
  take_over,      // from the store, by way of a checkpoint: the plan has the state in other places
};

struct StartingPoint {
  StartKind kind = StartKind::anew;
  std::int64_t step = 0;  // number of steps done
  // The newest checkpoint that exists then; 0: none. Later steps are not kept until they are saved or durable.
  std::int64_t saved_step = 0;
  bool discards_store = false;  // a checkpoint has all that the run's store has, or more
};

// Chooses the newest state. Throws InputError if the run cannot go on from it, if there is none, and if it is beyond the run's
// last step.
StartingPoint starting_point(const RunRemains& remains, const StartAsked& asked);

}  // namespace spillway
