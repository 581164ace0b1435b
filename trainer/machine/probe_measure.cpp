#include "trainer/machine/probe_measure.h"

#include "trainer/host/interrupt.h"
#include "trainer/machine/probe_work.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <utility>

namespace spillway {

double seconds_of(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double seconds_of(UnitsAlone& units) {
  double seconds = 0;
  for (const UnitsAlone::Pass& pass : units.passes()) {
    units.leave_caches(pass);
    seconds += seconds_of([&] { units.run(pass); });
  }
  return seconds;
}

double seconds_of(Update& update, void (Update::*work)()) {
  update.leave_caches();
  return seconds_of([&] { (update.*work)(); });
}

std::vector<double> seconds_of_each(const Sampling& sampling, const std::function<double()>& timed) {
  timed();
  std::vector<double> seconds;
  double sum = 0;
  for (int i = 0; i < sampling.samples && (i < sampling.least_samples || sum < sampling.figure_s); ++i) {
    InterruptHandler::stop_where_requested(kNotMeasured);
    seconds.push_back(timed());
    sum += seconds.back();
  }
  return seconds;
}

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

Measurement middle_of(std::string name, std::vector<double> values) {
  std::ranges::sort(values);
  return {std::move(name), values[values.size() / 2], values.front(), values.back(), static_cast<int>(values.size())};
}

Measurement mean_of(std::string name, const std::vector<double>& values) {
  const auto [least, most] = std::ranges::minmax(values);
  return {std::move(name), std::clamp(mean(values), least, most), least, most, static_cast<int>(values.size())};
}

Measurement figure(std::string name, double value) { return mean_of(std::move(name), {value}); }

Measurement measured(std::string name, double amount, const std::vector<double>& seconds) {
  const auto [least, most] = std::ranges::minmax(seconds);
  return {std::move(name), amount / mean(seconds), amount / most, amount / least, static_cast<int>(seconds.size()), {}, true};
}

Measurement mean_of_rounds(const std::vector<Measurement>& rounds) {
  Measurement all = rounds.front();
  all.samples = 0;
  std::vector<double> values;
  for (const Measurement& round : rounds) {
    values.push_back(all.of_work ? 1 / round.value : round.value);
    all.least = std::min(all.least, round.least);
    all.most = std::max(all.most, round.most);
    all.samples += round.samples;
  }
  all.value = std::clamp(all.of_work ? 1 / mean(values) : mean(values), all.least, all.most);
  return all;
}

}  // namespace spillway
