// The control block of a step: what it was told, what it finds out, and whether it counts. The step's own run writes it; whatever
// applies the step's gradients reads it, and that may be the run behind: so it lasts until both are complete. The norm and the
// clip factor are words of the plan besides (Plan::factor_buffer), which moves take to the tier that updates.
// Not here: the run that takes a step through its lanes (run_under_way.h).
#pragma once

#include <atomic>
#include <mutex>
#include <optional>
#include <string>

#include "offload/executor.h"

namespace spillway {

class StepControl {
 public:
  // Nothing of the step before that had this place is left.
  void begin(const StepSettings& step) {
    settings = step;
    known_factor.reset();
    again();
  }
  // Of a step that is run once more.
  void again() {
    loss = loss_sum = grad_norm = 0;
    clip_factor = 1;
    updates_began.store(false);
    is_stopped_.store(false);
    why_stopped_.clear();
  }

  // The first reason stays. May be called by any lane.
  void stop(std::string why) {
    const std::lock_guard lock(mutex_);
    if (why_stopped_.empty()) why_stopped_ = std::move(why);
    is_stopped_.store(true, std::memory_order_release);
  }
  // For lanes that are still at it: its updates are not to be applied.
  bool is_stopped() const { return is_stopped_.load(std::memory_order_acquire); }
  // Once its run is complete; empty: it counts.
  const std::string& why_stopped() const { return why_stopped_; }

  StepSettings settings;
  std::optional<double> known_factor;  // by which its gradients are scaled, where it is run again since it was found too late
  double loss = 0, loss_sum = 0, grad_norm = 0;
  double clip_factor = 1;  // by which its gradients are to be scaled; updates on the host take it from Plan::factor_buffer
  std::atomic<bool> updates_began{false};  // in its own run

 private:
  std::mutex mutex_;
  std::atomic<bool> is_stopped_{false};
  std::string why_stopped_;
};

}  // namespace spillway
