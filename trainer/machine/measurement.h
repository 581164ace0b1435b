// A measured figure. Not here: how it is sampled (probe_measure.h), the profile that holds it (memory/plan/machine.h).
#pragma once

#include <string>

namespace spillway {

// A figure and the spread of its samples: a rate per second, a share, seconds, or rows.
struct Measurement {
  std::string name;  // the name in the profile
  double value = 0, least = 0, most = 0;
  int samples = 0;
  std::string of;  // the part that this is of the figure, such as a class of shapes: shown, but not in the profile; empty: the
                   // figure itself
  bool of_work = false;  // a rate of work per time, whose mean is all work by all time: harmonic
};

}  // namespace spillway
