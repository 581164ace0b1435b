#include "trainer/machine/settling_rate.h"

#include <cmath>
#include <numeric>

#include "memory/base/error.h"

namespace spillway {

void SettlingRate::add(double bytes, double seconds) {
  bytes_.push_back(bytes);
  window_s_.push_back(seconds);
  rates_.push_back(bytes / seconds);
  seconds_ += seconds;
}

bool SettlingRate::settled() const {
  if (windows() < rule_.agreeing) return false;
  const auto first = rates_.end() - rule_.agreeing;
  const double mean = std::accumulate(first, rates_.end(), 0.0) / rule_.agreeing;
  return std::all_of(first, rates_.end(), [&](double rate) { return std::abs(rate - mean) <= rule_.spread * mean; });
}

double SettlingRate::value() const {
  SPILLWAY_CHECK(windows() > 0, "a rate of nothing");
  const int count = settled() ? rule_.agreeing : (windows() + 1) / 2;
  return std::accumulate(bytes_.end() - count, bytes_.end(), 0.0) /
         std::accumulate(window_s_.end() - count, window_s_.end(), 0.0);
}

}  // namespace spillway
