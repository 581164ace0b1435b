// How the probe samples: repetition, averages, and the parts that measure. Not for anyone but trainer/probe*.cpp.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "memory/parallel.h"
#include "trainer/probe.h"
#include "trainer/probe_work.h"

namespace spillway {

struct Sampling {
  int samples = 15;             // of each figure, after one that is thrown away
  int least_samples = 3;        // where they take long
  double figure_s = 0.5;        // what long is
  double pass_s = 0.2;          // a disk pass, or two lanes side by side, lasts at most so long
  int passes = 3;               // samples of each disk figure and of shared work
  Bytes disk_bytes = kGiB / 2;  // of the file that is read, and of the one that is written
};

double seconds_of(const std::function<void()>& work);
std::vector<double> seconds_of_each(const Sampling& sampling, const std::function<void()>& work);
// `amount` of work in each of those times: all work by all time. A step takes the sum of what its operations take, those that
// other programs disturb among them.
Measurement measured(std::string name, double amount, const std::vector<double>& seconds);
Measurement mean_of(std::string name, const std::vector<double>& values);  // of rates over equal times, too
Measurement middle_of(std::string name, std::vector<double> values);
double mean(const std::vector<double>& values);

std::vector<Measurement> measure_compute(const ThreadPool& pool, const Sampling& sampling);
// What whole units make of the rates of their parts, which `parts` has.
std::vector<Measurement> measure_layers(const ThreadPool& pool, const Sampling& sampling, const MachineProfile& parts);
// Until a lane that waits for another's operation goes on after it.
std::vector<Measurement> measure_handover(const Sampling& sampling);
std::vector<Measurement> measure_disk(DiskMoves& disk, const Sampling& sampling);
// Speeds of lanes beside one another, as shares of their speeds alone. `disk` may be null.
std::vector<Measurement> measure_beside(const ThreadPool& pool, DiskMoves* disk, const Sampling& sampling);

}  // namespace spillway
