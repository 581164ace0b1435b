#include <atomic>
#include <future>
#include <thread>

#include "trainer/host/interrupt.h"
#include "trainer/machine/probe_measure.h"
#include "trainer/machine/probe_work.h"
#include "trainer/machine/units_alone.h"

namespace spillway {
namespace {

// Repetitions a second, until told to stop; at least one.
double rate_until(const std::atomic<bool>& stop, const std::function<void()>& work) {
  int runs = 0;
  const double seconds = seconds_of([&] {
    for (; !stop.load(std::memory_order_relaxed) || runs == 0; ++runs) work();
  });
  return runs / seconds;
}

// Repetitions a second over `seconds`. `timed` returns the time that it counts itself: preparations do not count.
double rate_for(double seconds, const std::function<double()>& timed) {
  int runs = 0;
  double counted_s = 0;
  for (double all_s = 0; runs == 0 || (all_s < seconds && !InterruptHandler::requested()); ++runs)
    all_s += seconds_of([&] { counted_s += timed(); });
  return runs / counted_s;
}

// Rates of two loads that run at the same time; the first one sets the duration.
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

// Layers and updates, as they run side by side in a step.
class Loads {
 public:
  Loads(const ThreadPool& pool, std::int64_t updated)
      : units_(pool, "smollm2-135m", {.sequence = 256}, UnitsAlone::Units::of_layers),
        update_pool_(pool.threads(), PoolPriority::high),  // the update lane's priority
        update_(update_pool_, updated) {
    layer(), update();
  }
  void layer() { units_.run_all(); }
  void update() { update_.run(); }
  double layers_for(double seconds) {
    return rate_for(seconds, [&] { return seconds_of(units_); });
  }
  double updates_for(double seconds) {
    return rate_for(seconds, [&] { return seconds_of(update_, &Update::run); });
  }

 private:
  UnitsAlone units_;
  ThreadPool update_pool_;
  Update update_;
};

}  // namespace

// Measures the speed of a lane beside another, as a share of its speed alone right before and right after: other programs and the
// drive itself change from moment to moment.

std::vector<Measurement> measure_shared(const ThreadPool& pool, const Sampling& sampling) {
  Loads loads(pool, 4 << 20);  // 64 MiB
  // Both the load alone and the load beside another find in the caches what their last run left there: the second case cannot
  // empty them in between.
  const auto alone = [&](void (Loads::*load)()) {
    return rate_for(sampling.pass_s / 2, [&] { return seconds_of([&] { (loads.*load)(); }); });
  };
  const double layers = alone(&Loads::layer), updates = alone(&Loads::update);
  const Rates both = rates_of_both(2 * sampling.pass_s, [&] { loads.layer(); }, [&] { loads.update(); });
  const double updates_after = alone(&Loads::update), layers_after = alone(&Loads::layer);
  return {figure("shared_compute", both.first / mean({layers, layers_after})),
          figure("shared_update", both.second / mean({updates, updates_after}))};
}

std::vector<Measurement> measure_beside(const ThreadPool& pool, DiskMoves& disk, const Sampling& sampling) {
  Loads loads(pool, 2 << 20);  // 32 MiB, as much as the moves have
  std::vector<Measurement> measurements;
  const auto beside = [&](const std::string& way, double (DiskMoves::*move)(double, const std::function<void()>&)) {
    const double half_s = sampling.pass_s / 2;
    Rates both;
    const auto together = [&](double (Loads::*load)(double)) {
      std::atomic_flag begun;
      const auto begin = [&] { begun.test_and_set(), begun.notify_one(); };
      // An exception of the drive reaches the caller, which then does not wait for moves that never began.
      std::future<double> other = std::async(std::launch::async, [&] {
        try {
          return (disk.*move)(sampling.pass_s, begin);
        } catch (...) {
          begin();
          throw;
        }
      });
      begun.wait(false);
      both.first = (loads.*load)(0.8 * sampling.pass_s);
      both.second = other.get();
    };
    const double layers = loads.layers_for(half_s), moves = (disk.*move)(half_s, {});
    together(&Loads::layers_for);
    const double moves_after = (disk.*move)(half_s, {}), layers_after = loads.layers_for(half_s);
    measurements.push_back(figure("compute_beside_" + way, both.first / mean({layers, layers_after})));
    measurements.push_back(figure(way + "_beside_compute", both.second / mean({moves, moves_after})));
    const double updates = loads.updates_for(half_s);
    together(&Loads::updates_for);
    measurements.push_back(figure("update_beside_" + way, both.first / mean({updates, loads.updates_for(half_s)})));
  };
  beside("read", &DiskMoves::read_for);
  beside("write", &DiskMoves::write_for);
  return measurements;
}

}  // namespace spillway
