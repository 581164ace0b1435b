// Notices that steps take longer than planned, and says once which lane and which operations make the difference.
// Not here: the full comparison of a run with its plan (run_analysis.h).
#pragma once

#include <array>
#include <optional>
#include <string>

#include "memory/plan/plan.h"
#include "memory/search/simulate.h"

namespace spillway {

class PlanDrift {
 public:
  // All references must outlive it. `threshold`: fraction by which steps may be longer than planned; 0 turns it off.
  PlanDrift(const Plan& plan, const UnitGraph& graph, const Prediction& prediction, double threshold);

  // Call it for each step, in order. Returns a message at the first step at which the median of the last few is too long.
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
