#include "trainer/machine/drive_fit.h"

#include <algorithm>
#include <cmath>

namespace spillway {
namespace {

constexpr double kMost = 1.5;      // largest factor by which rates are changed
constexpr double kDecides = 1.03;  // least ratio of the step with the slowest of these rates to the step with the fastest
constexpr int kHalvings = 10;

SeenDrive times(SeenDrive seen, double factor) {
  for (const DriveRateName& figure : kDriveRates) seen.rates.*figure.rate *= factor;
  return seen;
}

}  // namespace

void StepLengths::add(double step_s) {
  if (steps_++ == 1) last_.clear();
  if (last_.size() == kMost) last_.erase(last_.begin());
  last_.push_back(step_s);
}

double StepLengths::median() const {
  if (last_.empty()) return 0;
  std::vector<double> sorted = last_;
  std::ranges::sort(sorted);
  const std::size_t half = sorted.size() / 2;
  return sorted.size() % 2 != 0 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

SeenDrive fitted(const SeenDrive& seen, const MachineProfile& probed, double recorded_s,
                 const std::function<double(const MachineProfile&)>& step_s_on) {
  const auto step_s = [&](double factor) {
    MeasuredProfile measured;
    static_cast<MachineProfile&>(measured) = probed;
    measured.seen = times(seen, factor);
    return step_s_on(as_seen(measured));
  };
  const double slowest_s = step_s(1 / kMost), fastest_s = step_s(kMost);
  if (slowest_s < kDecides * fastest_s || recorded_s > slowest_s || recorded_s < fastest_s) return seen;
  double low = -std::log(kMost), high = std::log(kMost);
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = (low + high) / 2;
    (step_s(std::exp(middle)) > recorded_s ? low : high) = middle;
  }
  return times(seen, std::exp((low + high) / 2));
}

}  // namespace spillway
