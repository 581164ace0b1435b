// When each operation of a step began and ended: predicted by the simulator and recorded by the executor, with the same ids.
#pragma once

#include <vector>

namespace spillway {

struct Span {
  double begin_s = 0, end_s = 0;  // from the beginning of the step; of an operation that was skipped both are equal
};

struct Timeline {
  std::vector<Span> spans;  // one an operation of Plan::step, turn after turn of those that are kept: shown_turns()
  double origin_s = 0;      // when the step began, by a clock that goes on from step to step; 0 where predicted
};

}  // namespace spillway
