// Finds out when a busy drive has reached the rate that it sustains, after its caches have stopped absorbing data.
// Not here: keeping it busy (probe_work.h).
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <vector>

namespace spillway {

struct SettlingRule {
  double window_s = 0.25;  // seconds of each window whose rates are compared
  int agreeing = 4;        // number of windows in a row that must agree
  double spread = 0.05;    // largest distance of each from their mean, as a share of it
  double least_s = 1;      // seconds before which nothing counts as settled: a cache may absorb all data evenly for a while
  double most_s = 4;       // seconds after which it is over, settled or not
};

// Takes the windows one after another.
class SettlingRate {
 public:
  explicit SettlingRate(const SettlingRule& rule) : rule_(rule) {}

  void add(double bytes, double seconds);
  // Returns true if the last windows agree.
  bool settled() const;
  // Returns true if it has settled or its time is up.
  bool over() const { return seconds_ >= rule_.most_s || (seconds_ >= rule_.least_s && settled()); }

  // Bytes a second of the windows that agree; if none do, of the later half of the windows.
  double value() const;
  double least() const { return *std::ranges::min_element(rates_); }  // of all windows, including the first ones
  double most() const { return *std::ranges::max_element(rates_); }
  int windows() const { return static_cast<int>(rates_.size()); }
  const SettlingRule& rule() const { return rule_; }

 private:
  SettlingRule rule_;
  double seconds_ = 0;
  std::vector<double> bytes_, window_s_, rates_;
};

// Two directions of a busy drive, each reported by a thread of its own. It is over for both once both are over, and stays so,
// because from then on each direction may run alone.
class BothSettled {
 public:
  bool over(int way, const SettlingRate& rate) { return set_over(way, rate.over()); }
  void gone(int way) { set_over(way, true); }  // reports that this direction ends: the other one need not wait for it

 private:
  bool set_over(int way, bool is_over) {
    ways_[way].store(is_over);
    if (ways_[0].load() && ways_[1].load()) both_.store(true);
    return both_.load();
  }
  std::array<std::atomic<bool>, 2> ways_{};
  std::atomic<bool> both_{false};
};

}  // namespace spillway
