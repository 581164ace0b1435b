#include "trainer/show/plan_drift.h"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "trainer/show/lane_time.h"
#include "trainer/words/quantity.h"

namespace spillway {

PlanDrift::PlanDrift(const Plan& plan, const UnitGraph& graph, const Prediction& prediction, double threshold)
    : plan_(plan), graph_(graph), prediction_(prediction), threshold_(threshold) {}

std::optional<std::string> PlanDrift::observe(double step_s, const Timeline& timeline) {
  if (threshold_ <= 0) return std::nullopt;
  last_[static_cast<std::size_t>(steps_++ % kWindow)] = step_s;
  if (steps_ < kWarmUp + kWindow) return std::nullopt;
  std::array<double, kWindow> sorted = last_;
  std::ranges::sort(sorted);
  const double middle = sorted[kWindow / 2];
  // The current step must be long, too, because the message analyses it.
  if (std::min(middle, step_s) <= prediction_.step_s * (1 + threshold_)) return std::nullopt;
  threshold_ = 0;
  return message(middle, timeline);
}

std::string PlanDrift::message(double step_s, const Timeline& timeline) const {
  std::vector<Lane> lanes;
  for (std::size_t i = 0; i < timeline.spans.size(); ++i) lanes.push_back(op_of_span(plan_, i).op.lane);
  const std::vector<double> planned = lane_seconds(lanes, prediction_.timeline.spans),
                            recorded = lane_seconds(lanes, timeline.spans);
  By<Lane, double> planned_busy{}, busy{};
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    planned_busy[lanes[i]] += planned[i];
    busy[lanes[i]] += recorded[i];
  }
  Lane lane = kAll<Lane>.front();
  for (const Lane other : kAll<Lane>) {
    if (busy[other] - planned_busy[other] > busy[lane] - planned_busy[lane]) lane = other;
  }
  std::vector<std::size_t> worst(lanes.size());
  std::iota(worst.begin(), worst.end(), std::size_t{0});
  std::erase_if(worst, [&](std::size_t id) { return lanes[id] != lane; });
  std::ranges::stable_sort(worst, std::ranges::greater(), [&](std::size_t id) { return recorded[id] - planned[id]; });
  worst.resize(std::min<std::size_t>(worst.size(), 3));
  std::string text =
      fmt::format("steps take {}, {:.0f} % longer than the planned {}: most of it on {} ({} busy, planned {})",
                  rounded_seconds(step_s), 100 * (step_s / prediction_.step_s - 1), rounded_seconds(prediction_.step_s),
                  name_of(lane), rounded_seconds(busy[lane]), rounded_seconds(planned_busy[lane]));
  std::string_view gap = "; operations ";
  for (const std::size_t id : worst) {
    const Op& op = op_of_span(plan_, id).op;
    const std::string of = op.unit >= 0    ? " " + graph_.units[op.unit].name
                           : op.block >= 0 ? " " + graph_.blocks[op.block].name
                                           : "";
    text += fmt::format("{}{} {}{} ({}, planned {})", gap, id, name_of(op), of, rounded_seconds(recorded[id]),
                        rounded_seconds(planned[id]));
    gap = ", ";
  }
  return text + "; `spillway report` shows the rest, `spillway probe` measures the machine anew";
}

}  // namespace spillway
