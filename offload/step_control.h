// The control block of a step: its settings, its results, and whether it counts. The step's own run writes it. Operations that
// apply the step's gradients read it, which may be in the next run, so it lasts until both runs are complete. The norm and the
// clip factor are also words of the plan (Plan::factor_buffer), which moves take to the tier that updates.
// Not here: the run that takes a step through its lanes (run_under_way.h).
#pragma once

#include <atomic>
#include <mutex>
#include <optional>
#include <string>

#include "memory/plan/mixture_outcome.h"
#include "offload/step_settings.h"

namespace spillway {

class StepControl {
 public:
  // Begins a step; nothing is left of the earlier step that used this object.
  void begin(const StepSettings& step) {
    settings = step;
    known_factor.reset();
    again();
  }
  // Begins a step that is run once more.
  void again() {
    loss = loss_sum = grad_norm = 0;
    mixture.reset();
    clip_factor = 1;
    updates_began.store(false);
    is_stopped_.store(false), is_skipped_.store(false);
    why_stopped_.clear(), why_skipped_.clear();
  }

  // The first reason stays. May be called by any lane.
  void stop(std::string why) {
    const std::lock_guard lock(mutex_);
    if (why_stopped_.empty()) why_stopped_ = std::move(why);
    is_stopped_.store(true, std::memory_order_release);
  }
  // The same of a step that counts but applies nothing: its updates leave the state as it is.
  void skip(std::string why) {
    const std::lock_guard lock(mutex_);
    if (why_skipped_.empty()) why_skipped_ = std::move(why);
    is_skipped_.store(true, std::memory_order_release);
  }
  bool is_skipped() const { return is_skipped_.load(std::memory_order_acquire); }
  const std::string& why_skipped() const { return why_skipped_; }
  // For lanes that are still running it: true when its updates must not be applied.
  bool is_stopped() const { return is_stopped_.load(std::memory_order_acquire); }
  // To be called once its run is complete; empty: the step counts.
  const std::string& why_stopped() const { return why_stopped_; }

  StepSettings settings;
  std::optional<double> known_factor;  // clip factor of a step that is run again because the factor was found too late
  double loss = 0, loss_sum = 0, grad_norm = 0;
  std::optional<MixtureOutcome> mixture;  // of a model that has experts
  double clip_factor = 1;  // factor that scales its gradients; updates on the host take it from Plan::factor_buffer
  std::atomic<bool> updates_began{false};  // true: an update has begun in its own run

 private:
  std::mutex mutex_;
  std::atomic<bool> is_stopped_{false}, is_skipped_{false};
  std::string why_stopped_, why_skipped_;
};

}  // namespace spillway
