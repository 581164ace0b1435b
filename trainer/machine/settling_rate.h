// When a drive that is kept busy has come to the rate that it sustains: what its caches take at first is over then.
// Not here: keeping it busy (probe_work.h).
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <vector>

namespace spillway {

struct SettlingRule {
  double window_s = 0.25;  // of which rates are compared
  int agreeing = 4;        // windows in a row that must agree
  double spread = 0.05;    // by so much, at most, each of them from their mean
  double least_s = 1;      // before that nothing counts as settled: a cache may take all for a while, evenly
  double most_s = 4;       // then it is over, settled or not
};

// Is told of windows one after the other.
class SettlingRate {
 public:
  explicit SettlingRate(const SettlingRule& rule) : rule_(rule) {}

  void add(double bytes, double seconds);
  // The last windows agree.
  bool settled() const;
  // It has settled, or there is no more time for it.
  bool over() const { return seconds_ >= rule_.most_s || (seconds_ >= rule_.least_s && settled()); }

  // Bytes a second of the windows that agree. Where none do, of the later half: whatever went before them is over.
  double value() const;
  double least() const { return *std::ranges::min_element(rates_); }  // of all windows, the first ones, too
  double most() const { return *std::ranges::max_element(rates_); }
  int windows() const { return static_cast<int>(rates_.size()); }
  const SettlingRule& rule() const { return rule_; }

 private:
  SettlingRule rule_;
  double seconds_ = 0;
  std::vector<double> bytes_, window_s_, rates_;
};

// Of two ways that a drive is kept busy, each told of by a thread of its own: it is over for both as soon as both are over, and
// remains so, since what one of them does from there on it does alone.
class BothSettled {
 public:
  bool over(int way, const SettlingRate& rate) { return set_over(way, rate.over()); }
  void gone(int way) { set_over(way, true); }  // no more will be told of this one: nobody waits for it

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
