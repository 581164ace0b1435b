#include "trainer/run/run_checkpoints.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "files/json_text.h"
#include "trainer/keep/checkpoint.h"

namespace spillway {

RunCheckpoints::RunCheckpoints(const CheckpointOptions& options, const RunDirectory& directory, StepLoop& loop, const Plan& plan,
                               const UnitGraph& graph, std::int64_t saved_step)
    : options_(options), directory_(directory), loop_(loop), plan_(plan), graph_(graph), saved_step_(saved_step) {}

void RunCheckpoints::note_step(const StepOutcome& outcome) {
  timeline_ = outcome.timeline;
  timeline_step_ = outcome.step;
}

// Writes the last step's times beside plan.json's prediction: operation i of the plan ran from spans[i][0] to spans[i][1].
void RunCheckpoints::write_timeline() const {
  if (timeline_step_ == 0) return;
  nlohmann::ordered_json json = {{"step", timeline_step_}, {"spans", nlohmann::ordered_json::array()}};
  for (const Span& span : timeline_.spans) json["spans"].push_back({span.begin_s, span.end_s});
  directory_.write("timeline.json", json_text(json, -1));
}

void RunCheckpoints::save(std::int64_t step) {
  if (step == saved_step_) return;
  write_timeline();
  save_checkpoint(directory_, step, loop_.executor(), plan_, graph_);
  prune();
  saved_step_ = step;
}

void RunCheckpoints::save_best(std::int64_t step) {
  if (step == best_step_) return;
  finish_copy();
  const std::vector<std::int64_t> there = checkpoint_steps(directory_.path());
  if (std::ranges::find(there, step) == there.end()) {
    write_timeline();
    save_checkpoint(directory_, step, loop_.executor(), plan_, graph_);
    saved_step_ = step;
  }
  const std::optional<std::int64_t> former = std::exchange(best_step_, step);
  // --keep-last 0 keeps what --save-interval has written.
  const bool is_of_interval = former && *former > 0 && saves_after(*former);
  if (former && options_.keep_last == 0 && !is_of_interval) directory_.remove_checkpoint(*former);
  prune();
}

void RunCheckpoints::prune() const { directory_.prune_checkpoints(options_.keep_last, best_step_); }

void RunCheckpoints::save_beside(std::int64_t step) {
  finish_copy();
  if (step == saved_step_) return;
  copy_ = loop_.begin_copy(directory_, step);
  if (!copy_) return save(step);
  write_timeline();
}

void RunCheckpoints::take_complete_copy() {
  if (copy_ && copy_->complete()) finish_copy();
}

void RunCheckpoints::finish_copy() {
  if (!copy_) return;
  const std::unique_ptr<CheckpointCopy> copy = std::move(copy_);
  copy->finish();
  prune();
  saved_step_ = copy->step();
}

}  // namespace spillway
