// Notices that steps take longer than planned, and says once which lane and which operations make the difference.
// Not here: the whole comparison of a run with its plan (run_analysis.h).
#pragma once

#include <array>
#include <optional>
#include <string>

#include "memory/plan.h"
#include "memory/search/simulate.h"

namespace spillway {

class PlanDrift {
 public:
  // All given must outlive it. `threshold` is the share by which steps may be longer than planned; 0: nothing is ever said.
  PlanDrift(const Plan& plan, const UnitGraph& graph, const Prediction& prediction, double threshold);

  // To be told of each step, in order. What is to be said, at the first step at which the middle one of the last few is too long.
  std::optional<std::string> observe(double step_s, const Timeline& timeline);

 private:
  std::string message(double step_s, const Timeline& timeline) const;

  static constexpr int kWarmUp = 1;  // the first step finds caches and pages cold
  static constexpr int kWindow = 5;
  const Plan& plan_;
  const UnitGraph& graph_;
  const Prediction& prediction_;
  double threshold_;
  int steps_ = 0;
  std::array<double, kWindow> last_{};
};

}  // namespace spillway
