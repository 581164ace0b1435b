#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "models/units_alone.h"
#include "trainer/probe_measure.h"
#include "trainer/probe_work.h"

namespace spillway {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

double share(double beside, double alone) { return std::clamp(beside / alone, 0.05, 1.0); }

// Repetitions a second, at least one, until told to stop or for so long.
double rate_until(const std::atomic<bool>& stop, const std::function<void()>& work) {
  int runs = 0;
  const double seconds = seconds_of([&] {
    for (; !stop.load(std::memory_order_relaxed) || runs == 0; ++runs) work();
  });
  return runs / seconds;
}

// For so long, of which `timed` returns what it counts itself: preparations do not count.
double rate_for(double seconds, const std::function<double()>& timed) {
  int runs = 0;
  double counted_s = 0;
  for (const auto begin = Clock::now(); runs == 0 || seconds_since(begin) < seconds; ++runs) counted_s += timed();
  return runs / counted_s;
}

// Two loads at once, of which the first sets the time.
struct Rates {
  double first = 0, second = 0;
};
Rates rates_of_both(double seconds, const std::function<void()>& first, const std::function<void()>& second) {
  Rates rates;
  std::atomic<bool> stop{false};
  std::thread other([&] { rates.second = rate_until(stop, second); });
  rates.first = rate_for(seconds, [&] { return seconds_of(first); });
  stop.store(true);
  other.join();
  return rates;
}

// Layers and updates as beside each other in a step.
class Loads {
 public:
  Loads(const ThreadPool& pool, std::int64_t updated)
      : units_(pool, "smollm2-135m", {.sequence = 256}, UnitsAlone::Units::of_layers),
        update_pool_(pool.threads(), PoolPriority::high),  // as the update lane has
        update_(update_pool_, updated) {
    layer(), update();
  }
  void layer() { units_.run_all(); }
  void update() { update_.run(); }
  double layers_for(double seconds) {
    return rate_for(seconds, [&] { return seconds_of(units_); });
  }
  double updates_for(double seconds) {
    return rate_for(seconds, [&] {
      update_.leave_caches();
      return seconds_of([&] { update_.run(); });
    });
  }

 private:
  UnitsAlone units_;
  ThreadPool update_pool_;
  Update update_;
};

}  // namespace

std::vector<Measurement> measure_shared(const ThreadPool& pool, const Sampling& sampling) {
  // 80 MiB, beside the layer's 21 MiB and more: each of them drives the other's out of the caches.
  Loads loads(pool, 5 << 20);
  // What each is compared with runs right before it: other programs and the drive itself change from moment to moment.
  const double layers = loads.layers_for(sampling.pass_s / 2), updates = loads.updates_for(sampling.pass_s / 2);
  const Rates both = rates_of_both(2 * sampling.pass_s, [&] { loads.layer(); }, [&] { loads.update(); });
  return {mean_of("shared_compute", {share(both.first, layers)}), mean_of("shared_update", {share(both.second, updates)})};
}

std::vector<Measurement> measure_beside(const ThreadPool& pool, DiskMoves& disk, const Sampling& sampling) {
  Loads loads(pool, 3 << 20);
  const double layers = loads.layers_for(sampling.pass_s / 2), updates = loads.updates_for(sampling.pass_s / 2);
  std::vector<Measurement> measurements;
  const auto beside = [&](const std::string& way, double (DiskMoves::*move)(double)) {
    const double alone = (disk.*move)(sampling.pass_s);
    double moved = 0;
    std::thread other([&] { moved = (disk.*move)(sampling.pass_s); });
    const double layers_beside = loads.layers_for(0.8 * sampling.pass_s);
    other.join();
    std::thread again([&] { (disk.*move)(sampling.pass_s); });
    const double updates_beside = loads.updates_for(0.8 * sampling.pass_s);
    again.join();
    measurements.push_back(mean_of("compute_beside_" + way, {share(layers_beside, layers)}));
    measurements.push_back(mean_of("update_beside_" + way, {share(updates_beside, updates)}));
    measurements.push_back(mean_of(way + "_beside_compute", {share(moved, alone)}));
  };
  beside("read", &DiskMoves::read_for);
  beside("write", &DiskMoves::write_for);
  return measurements;
}

}  // namespace spillway
