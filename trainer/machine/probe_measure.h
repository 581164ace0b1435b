// How the probe samples: repetition, averages, and the parts that measure. Not for anyone but trainer/machine/probe*.cpp.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "memory/machine.h"
#include "memory/parallel.h"
#include "trainer/machine/measurement.h"
#include "trainer/machine/probe_work.h"
#include "trainer/machine/units_alone.h"

namespace spillway {

// What a machine does changes from minute to minute: every figure is sampled a little in each of several rounds through them all.
struct Sampling {
  int rounds = 3;
  int samples = 5;               // of each figure in a round, after one that is thrown away
  int least_samples = 1;         // where they take long
  double figure_s = 0.2;         // what long is
  double layers_s = 0.5;         // whole layers in a round, of each type and number of rows: all compute is planned by them
  double pass_s = 0.2;           // a disk pass, or two lanes side by side, lasts at most so long: one of each in a round
  Bytes disk_bytes = 16 * kGiB;  // of the files in all: those that fit a cache have its rate
  // What a drive sustains: before all else, so that it is as tired in the rest as it is in a long step.
  SettlingRule writes{.least_s = 1.5, .most_s = 4}, reads{.least_s = 0.75, .most_s = 2.5}, both{.least_s = 0.75, .most_s = 3};
};

double seconds_of(const std::function<void()>& work);
double seconds_of(UnitsAlone& units);  // of all passes, each with its weights and gradients out of the caches
double seconds_of(Update& update, void (Update::*work)());  // of one of its kinds of work, on what is in no cache
// `timed` returns its own seconds.
std::vector<double> seconds_of_each(const Sampling& sampling, const std::function<double()>& timed);
// `amount` of work in each of those times: all work by all time. A step takes the sum of what its operations take, those that
// other programs disturb among them.
Measurement measured(std::string name, double amount, const std::vector<double>& seconds);
Measurement mean_of(std::string name, const std::vector<double>& values);  // of rates over equal times, too
Measurement figure(std::string name, double value);                        // sampled once in a round
Measurement mean_of_rounds(const std::vector<Measurement>& rounds);
Measurement middle_of(std::string name, std::vector<double> values);
double mean(const std::vector<double>& values);

std::vector<Measurement> measure_compute(const ThreadPool& pool, const Sampling& sampling);
// A GPU in place of that, its link, and updates on its host.
std::vector<Measurement> measure_gpu(Device& device, const ThreadPool& pool, const Sampling& sampling);
// What whole units make of the rates of their parts, which `parts` has.
std::vector<Measurement> measure_layers(const ThreadPool& pool, const Sampling& sampling, const MachineProfile& parts);
// Until a lane that waits for another's operation goes on after it.
std::vector<Measurement> measure_handover(const Sampling& sampling);
std::vector<Measurement> measure_sustained(DiskMoves& disk, const Sampling& sampling);
std::vector<Measurement> measure_requests(DiskMoves& disk, const Sampling& sampling);
// Speeds of lanes beside one another, as shares of their speeds alone; above one where a round was disturbed.
std::vector<Measurement> measure_shared(const ThreadPool& pool, const Sampling& sampling);
std::vector<Measurement> measure_beside(const ThreadPool& pool, DiskMoves& disk, const Sampling& sampling);

}  // namespace spillway
