// A measured figure. Not here: how it is sampled (probe_measure.h), the profile that it goes into (memory/machine.h).
#pragma once

#include <string>

namespace spillway {

// A figure and how its samples lay: per second of work, a share, seconds, or rows.
struct Measurement {
  std::string name;  // as in the profile
  double value = 0, least = 0, most = 0;
  int samples = 0;
  std::string of;  // a part of the figure, such as a class of shapes: shown, but not in the profile; empty: the figure itself
  bool of_work = false;  // work by time, whose mean is all work by all time: harmonic
};

}  // namespace spillway
