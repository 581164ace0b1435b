#include "trainer/keep/starting_point.h"

#include <fmt/core.h>

#include "memory/base/error.h"
#include "trainer/keep/checkpoint.h"

namespace spillway {
namespace {

void refuse_other_model(const RunRemains& remains) {
  if (remains.stored->is_of_this_model) return;
  throw InputError(fmt::format("--load {}: the state in {} is of another model", remains.run, remains.stored->place),
                   "Load it with the model that the run was begun with.");
}

void refuse_copy(const RunRemains& remains) {
  const std::optional<std::string>& rival = remains.stored->rival;
  if (!rival) return;
  throw InputError(
      fmt::format("--load {}: its state is in the store of the run in {}, which can go on, too: one is a copy of the other",
                  remains.run, *rival),
      fmt::format("Go on with {}. Or remove {}/store.json, if that one is not to go on; or {}/store.json, to go on from the "
                  "last checkpoint here. Or make a run of its own of the state: --load {} --save DIR, with another --nvme.",
                  *rival, *rival, remains.run, *rival));
}

}  // namespace

StartingPoint starting_point(const RunRemains& remains, const StartAsked& asked) {
  if (remains.run.empty()) return {};
  const std::optional<StoredStep>& stored = remains.stored;
  if (stored) {
    refuse_other_model(remains);
    if (asked.goes_on) refuse_copy(remains);
  }
  const bool by_store = stored && stored->step >= remains.checkpoint.value_or(0);
  if (!by_store && !remains.checkpoint) {
    // A run that was killed before its first step begins anew. It may not even have a log.
    if (asked.goes_on && !remains.has_log) return {};
    refuse_without_checkpoint(remains.run);
  }
  StartingPoint start;
  if (!by_store) {
    start = {.kind = StartKind::at_checkpoint, .step = *remains.checkpoint, .discards_store = stored && asked.goes_on};
  } else if (asked.goes_on && stored->lies_as_planned) {
    start = {.kind = StartKind::in_place, .step = stored->step};
  } else {
    start = {.kind = StartKind::take_over, .step = stored->step, .discards_store = asked.goes_on};
  }
  // State that only the store has is not saved by going on with it: a run that has nothing left to do still saves it.
  start.saved_step = start.kind == StartKind::in_place ? remains.checkpoint.value_or(0) : start.step;
  if (start.step > asked.train_iters) {
    throw InputError(fmt::format("--train-iters: found {}, allowed: at least {}, the step of {}", asked.train_iters, start.step,
                                 by_store ? stored->place : checkpoint_path(remains.run, start.step)));
  }
  return start;
}

}  // namespace spillway
