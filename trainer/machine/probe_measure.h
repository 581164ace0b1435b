// How the probe samples: repetition, averages, and the functions that measure. For trainer/machine/probe*.cpp only.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "memory/base/parallel.h"
#include "memory/plan/machine.h"
#include "trainer/machine/measurement.h"
#include "trainer/machine/probe_work.h"
#include "trainer/machine/units_alone.h"

namespace spillway {

// The speed of a machine changes from minute to minute, so every figure is sampled a little in each of several rounds.
struct Sampling {
  int rounds = 3;
  int samples = 5;               // samples of each figure in a round, after one that is thrown away
  int least_samples = 1;         // the same, if they take long
  double figure_s = 0.2;         // seconds that count as long
  double layers_s = 0.5;         // seconds of whole layers in a round, for each type and number of rows: they decide compute
  double pass_s = 0.2;           // longest time of a disk pass, or of two lanes side by side: one of each in a round
  Bytes disk_bytes = 16 * kGiB;  // bytes of all files together: files that fit a cache would have its rate
  // Rules for the rates that a drive sustains. They are measured first, so that the drive is as tired afterwards as it is in a
  // long step.
  SettlingRule writes{.least_s = 1.5, .most_s = 4}, reads{.least_s = 0.75, .most_s = 2.5}, both{.least_s = 0.75, .most_s = 3};
};

double seconds_of(const std::function<void()>& work);
double seconds_of(UnitsAlone& units);                       // all passes, each with its weights and gradients out of the caches
double seconds_of(Update& update, void (Update::*work)());  // one kind of its work, with all its data out of the caches
// `timed` returns the seconds that it counts itself.
std::vector<double> seconds_of_each(const Sampling& sampling, const std::function<double()>& timed);
// The rate of `amount` of work in each of these times: all work by all time. A step takes the sum of its operations' times,
// including those that other programs disturb.
Measurement measured(std::string name, double amount, const std::vector<double>& seconds);
Measurement mean_of(std::string name, const std::vector<double>& values);  // also for rates over equal times
Measurement figure(std::string name, double value);                        // sampled once in a round
Measurement mean_of_rounds(const std::vector<Measurement>& rounds);
Measurement middle_of(std::string name, std::vector<double> values);
double mean(const std::vector<double>& values);

std::vector<Measurement> measure_compute(const ThreadPool& pool, const Sampling& sampling);
// Measures a GPU instead of the CPU, its link, and updates on its host.
// `other`: another GPU; null: there is none.
std::vector<Measurement> measure_gpu(Device& device, Device* other, const ThreadPool& pool, const Sampling& sampling);
// Compares the times of whole units with the rates of their parts, given in `parts`.
std::vector<Measurement> measure_layers(const ThreadPool& pool, const Sampling& sampling, const MachineProfile& parts);
// Measures the time until a lane continues after an operation of another lane that it waited for.
std::vector<Measurement> measure_handover(const Sampling& sampling);
std::vector<Measurement> measure_sustained(DiskMoves& disk, const Sampling& sampling);
std::vector<Measurement> measure_requests(DiskMoves& disk, const Sampling& sampling);
// Measure the speeds of lanes side by side, as shares of their speeds alone; above 1 if a round was disturbed.
std::vector<Measurement> measure_shared(const ThreadPool& pool, const Sampling& sampling);
std::vector<Measurement> measure_beside(const ThreadPool& pool, DiskMoves& disk, const Sampling& sampling);

}  // namespace spillway
