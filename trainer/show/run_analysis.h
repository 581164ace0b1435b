// What a run did against its plan: how busy lanes were, which operations cost more than planned, where compute stood still.
// Not here: reading the run (run_record.h), showing it (run_report.h).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trainer/show/run_record.h"

namespace spillway {

// Seconds of its lane that an operation took: requests that overlap count from where the one before them ended.
struct LaneUse {
  double planned_s = 0, recorded_s = 0;
  Bytes bytes = 0;  // of those that ran
};
LaneUse use_of_lane(const RunRecord& run, Lane lane);

struct OperationCost {
  int id = 0;
  double planned_s = 0, recorded_s = 0;  // of its lane's time
  double excess_s() const { return recorded_s - planned_s; }
};
// Those that took most beyond their plan, most first.
std::vector<OperationCost> costliest(const RunRecord& run, std::size_t count);

// Compute stood still before an operation.
struct Stall {
  int id = 0;
  double begin_s = 0, seconds = 0;
  int waited_for = -1;  // the operation of this step that it waited for to the end; -1: none, or one of the step before
};
std::vector<Stall> longest_stalls(const RunRecord& run, std::size_t count);
double stalled_s(const RunRecord& run);

// Of the steps after the first, which also warms up, where there are others.
double median_of_steps(const RunRecord& run, double StepRecord::* figure);

}  // namespace spillway
