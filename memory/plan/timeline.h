// The times at which each operation of a step begins and ends: the simulator predicts them and the executor records them, with
// the same ids.
#pragma once

#include <vector>

namespace spillway {

struct Span {
  double begin_s = 0, end_s = 0;  // since the beginning of the step; equal for an operation that was skipped
};

struct Timeline {
  std::vector<Span> spans;  // [shown_turns(), operations of Plan::step]
  double origin_s = 0;      // time at which the step began, on a clock that goes on from step to step; 0 where predicted
};

}  // namespace spillway
