// Compares a run with its plan: how busy lanes were, which operations cost more than planned, where compute stalled.
// Not here: reading the run (run_record.h), showing it (run_report.h).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trainer/show/run_record.h"

namespace spillway {

// Time of a lane. If requests overlap, an operation's time begins at the end of the one before.
struct LaneUse {
  double planned_s = 0, recorded_s = 0;
  Bytes bytes = 0;  // of the operations that ran
};
LaneUse use_of_lane(const RunRecord& run, Lane lane);

struct OperationCost {
  int id = 0;
  double planned_s = 0, recorded_s = 0;  // seconds of its lane
  double excess_s() const { return recorded_s - planned_s; }
};
// The operations that took longest beyond their plan, the longest first.
std::vector<OperationCost> costliest(const RunRecord& run, std::size_t count);

// A time in which compute stood still before an operation.
struct Stall {
  int id = 0;
  double begin_s = 0, seconds = 0;
  int waited_for = -1;  // operation of this step whose end it waited for; -1: none, or one of the step before
};
std::vector<Stall> longest_stalls(const RunRecord& run, std::size_t count);
double stalled_s(const RunRecord& run);

// Median over the steps after the first, which also warms up; over all if there are no others.
double median_of_steps(const RunRecord& run, double StepRecord::* figure);

}  // namespace spillway
