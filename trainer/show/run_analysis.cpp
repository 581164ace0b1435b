#include "trainer/show/run_analysis.h"

#include <algorithm>
#include <limits>

#include "trainer/show/lane_time.h"

namespace spillway {
namespace {

// Ids of the lane's operations, in the order in which they began.
std::vector<int> in_order_of_begin(const RunRecord& run, Lane lane, Span RecordedOperation::* when) {
  std::vector<int> ids;
  for (std::size_t id = 0; id < run.operations.size(); ++id) {
    if (run.operations[id].lane == lane) ids.push_back(static_cast<int>(id));
  }
  std::ranges::stable_sort(ids, {}, [&](int id) { return (run.operations[static_cast<std::size_t>(id)].*when).begin_s; });
  return ids;
}

std::vector<double> occupancy(const RunRecord& run, Span RecordedOperation::* when) {
  std::vector<Lane> lanes;
  std::vector<Span> spans;
  for (const RecordedOperation& operation : run.operations) {
    lanes.push_back(operation.lane);
    spans.push_back(operation.*when);
  }
  return lane_seconds(lanes, spans);
}

std::vector<Stall> stalls(const RunRecord& run) {
  std::vector<Stall> found;
  double free_at = std::numeric_limits<double>::infinity();  // time before the first operation belongs to the step before
  for (const int id : in_order_of_begin(run, Lane::compute, &RecordedOperation::recorded)) {
    const RecordedOperation& operation = run.operations[static_cast<std::size_t>(id)];
    if (operation.recorded.end_s <= operation.recorded.begin_s) continue;
    if (operation.recorded.begin_s > free_at) {
      Stall stall{.id = id, .begin_s = free_at, .seconds = operation.recorded.begin_s - free_at};
      double latest = free_at;  // an operation that ended before compute was free delayed nothing
      for (const Wait& wait : operation.waits) {
        const double end_s = run.operations[static_cast<std::size_t>(wait.op)].recorded.end_s;
        if (wait.turn == 0 && end_s > latest) latest = end_s, stall.waited_for = wait.op;
      }
      found.push_back(stall);
    }
    free_at = free_at == std::numeric_limits<double>::infinity() ? operation.recorded.end_s
                                                                 : std::max(free_at, operation.recorded.end_s);
  }
  return found;
}

}  // namespace

LaneUse use_of_lane(const RunRecord& run, Lane lane) {
  const std::vector<double> planned = occupancy(run, &RecordedOperation::planned),
                            recorded = occupancy(run, &RecordedOperation::recorded);
  LaneUse use;
  for (std::size_t id = 0; id < run.operations.size(); ++id) {
    const RecordedOperation& operation = run.operations[id];
    if (operation.lane != lane) continue;
    use.planned_s += planned[id];
    use.recorded_s += recorded[id];
    if (operation.recorded.end_s > operation.recorded.begin_s) use.bytes += operation.bytes;
  }
  return use;
}

std::vector<OperationCost> costliest(const RunRecord& run, std::size_t count) {
  const std::vector<double> planned = occupancy(run, &RecordedOperation::planned),
                            recorded = occupancy(run, &RecordedOperation::recorded);
  std::vector<OperationCost> costs;
  for (std::size_t id = 0; id < run.operations.size(); ++id) costs.push_back({static_cast<int>(id), planned[id], recorded[id]});
  std::ranges::stable_sort(costs, std::ranges::greater(), &OperationCost::excess_s);
  costs.resize(std::min(costs.size(), count));
  return costs;
}

std::vector<Stall> longest_stalls(const RunRecord& run, std::size_t count) {
  std::vector<Stall> found = stalls(run);
  std::ranges::stable_sort(found, std::ranges::greater(), &Stall::seconds);
  found.resize(std::min(found.size(), count));
  return found;
}

double stalled_s(const RunRecord& run) {
  double seconds = 0;
  for (const Stall& stall : stalls(run)) seconds += stall.seconds;
  return seconds;
}

double median_of_steps(const RunRecord& run, double StepRecord::* figure) {
  std::vector<double> values;
  for (std::size_t i = run.log.size() > 1 ? 1 : 0; i < run.log.size(); ++i) values.push_back(run.log[i].*figure);
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

}  // namespace spillway
