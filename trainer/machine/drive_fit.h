// Adjusts the rates of a drive until they explain how long steps took: lanes show how much was moved in what time, but not what
// each move waited for.
// Not here: how a run observes its drive (drive_watch.h), the length of a plan's step (memory/search/simulate.h).
#pragma once

#include <functional>
#include <vector>

#include "trainer/machine/drive_rates.h"

namespace spillway {

// Lengths of the steps of a run. The first one, in which the drive is still rested, counts only until there is a second.
class StepLengths {
 public:
  void add(double step_s);
  double median() const;  // of the last steps; 0: none

 private:
  static constexpr std::size_t kMost = 16;
  std::vector<double> last_;
  std::size_t steps_ = 0;
};

// Returns the seen rates, all changed by one factor so that a step is as long as recorded. Leaves them alone if the drive does
// not decide the length of a step, or if they would have to change by more than slices of time can hide. `step_s_on`: seconds of
// a plan's step on a machine.
SeenDrive fitted(const SeenDrive& seen, const MachineProfile& probed, double recorded_s,
                 const std::function<double(const MachineProfile&)>& step_s_on);

}  // namespace spillway
