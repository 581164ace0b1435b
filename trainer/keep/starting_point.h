// Where a run begins: a pure function of what lies in its directories and of what was asked.
// Not here: looking what lies there (checkpoint.h, durable_store.h), doing what is decided (trainer/run/trainer.cpp).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace spillway {

// The step that the store of the run in --load holds.
struct StoredStep {
  std::int64_t step = 0;
  std::string place;  // for messages: the first of its directories
  bool is_of_this_model = true;
  bool lies_as_planned = false;      // the plan would have the same state in the same places, and keeps it durable
  std::optional<std::string> rival;  // another run directory that can go on with it, too: one of the two is a copy
};

// What the run in --load left.
struct RunRemains {
  std::string run;                         // empty: no --load
  bool has_log = false;                    // of a step or more
  std::optional<std::int64_t> checkpoint;  // the step of the newest
  std::optional<StoredStep> stored;
};

struct StartAsked {
  bool goes_on = false;  // in the run's own directory, --save; else a run of its own begins with its state
  std::int64_t train_iters = 0;
};

enum class StartKind : std::uint8_t {
  anew,           // from the model's weights
  at_checkpoint,  // from a file
  in_place,       // from the store, which goes on being the run's
  take_over,      // from the store, by way of a checkpoint: the plan has the state elsewhere
};

struct StartingPoint {
  StartKind kind = StartKind::anew;
  std::int64_t step = 0;  // that many are done
  // The newest checkpoint that there is then; 0: none. What comes after is not kept until it is saved or durable.
  std::int64_t saved_step = 0;
  bool discards_store = false;  // a checkpoint has all that the run's store has, or more
};

// The newest of what there is. InputError where that cannot be gone on with, where there is nothing, and where it is further than
// the run is to go.
StartingPoint starting_point(const RunRemains& remains, const StartAsked& asked);

}  // namespace spillway
