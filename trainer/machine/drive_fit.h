// Rates of a drive that explain how long steps took: lanes show what was moved in which time, but not what each waited for.
// Not here: what a run sees of its drive (drive_watch.h), what a plan would take with it (memory/search/simulate.h).
#pragma once

#include <functional>
#include <vector>

#include "trainer/machine/drive_rates.h"

namespace spillway {

// Lengths of the steps of a run; the first, in which a drive is still rested, counts only where there are few.
class StepLengths {
 public:
  void add(double step_s);
  double median() const;  // of the last ones; 0: none

 private:
  static constexpr std::size_t kMost = 16;
  std::vector<double> last_;
  std::size_t steps_ = 0;
};

// What was seen, with all its rates changed alike so that a step is as long as it was. They are left where the drive does not
// decide, and where they would have to change beyond what slices of time can hide. `step_s_on`: a plan's step on a machine.
SeenDrive fitted(const SeenDrive& seen, const MachineProfile& probed, double recorded_s,
                 const std::function<double(const MachineProfile&)>& step_s_on);

}  // namespace spillway
