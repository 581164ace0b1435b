#include <algorithm>
#include <atomic>
#include <thread>

#include "models/units_alone.h"
#include "trainer/probe_measure.h"
#include "trainer/probe_work.h"

namespace spillway {
namespace {

double share(double beside, double alone) { return std::clamp(beside / alone, 0.05, 1.0); }

// Repetitions a second, at least one, until told to stop or for so long.
double rate_until(const std::atomic<bool>& stop, const std::function<void()>& work) {
  int runs = 0;
  const double seconds = seconds_of([&] {
    for (; !stop.load(std::memory_order_relaxed) || runs == 0; ++runs) work();
  });
  return runs / seconds;
}

double rate_for(double least_s, const std::function<void()>& work) {
  int runs = 0;
  double seconds = 0;
  for (; seconds < least_s; ++runs) seconds += seconds_of(work);
  return runs / seconds;
}

// Two loads at once, of which the first sets the time.
struct Rates {
  double first = 0, second = 0;
};
Rates rates_of_both(double seconds, const std::function<void()>& first, const std::function<void()>& second) {
  Rates rates;
  std::atomic<bool> stop{false};
  std::thread other([&] { rates.second = rate_until(stop, second); });
  rates.first = rate_for(seconds, first);
  stop.store(true);
  other.join();
  return rates;
}

}  // namespace

std::vector<Measurement> measure_beside(const ThreadPool& pool, DiskMoves* disk, const Sampling& sampling) {
  UnitsAlone units(pool, "smollm2-135m", {.sequence = 256}, UnitsAlone::Units::of_layers);
  const ThreadPool update_pool(pool.threads(), PoolPriority::high);  // as the update lane has
  Update update(update_pool, 3 << 20);                               // 48 MiB: beyond the caches
  const auto layer = [&] { units.run_all(); };
  const auto updates = [&] { update.run(); };
  layer(), updates();
  // What each is compared with runs right before it: other programs and the drive itself change from moment to moment.
  std::vector<double> compute_shares, update_shares, compute_read, compute_write, update_read, update_write, read_compute,
      write_compute;
  for (int pass = 0; pass < sampling.passes; ++pass) {
    const double compute_alone = rate_for(sampling.pass_s / 2, layer), updates_alone = rate_for(sampling.pass_s / 2, updates);
    const Rates both = rates_of_both(2 * sampling.pass_s, layer, updates);
    compute_shares.push_back(share(both.first, compute_alone));
    update_shares.push_back(share(both.second, updates_alone));
    if (disk == nullptr) continue;
    const auto beside_disk = [&](double (DiskMoves::*move)(double), std::vector<double>& compute, std::vector<double>& updated,
                                 std::vector<double>& moved) {
      const double alone = (disk->*move)(sampling.pass_s);
      double rate = 0;
      std::thread other([&] { rate = (disk->*move)(sampling.pass_s); });
      compute.push_back(share(rate_for(0.8 * sampling.pass_s, layer), compute_alone));
      other.join();
      moved.push_back(share(rate, alone));
      std::thread again([&] { (disk->*move)(sampling.pass_s); });
      updated.push_back(share(rate_for(0.8 * sampling.pass_s, updates), updates_alone));
      again.join();
    };
    beside_disk(&DiskMoves::read_for, compute_read, update_read, read_compute);
    beside_disk(&DiskMoves::write_for, compute_write, update_write, write_compute);
  }
  std::vector<Measurement> measurements = {mean_of("shared_compute", compute_shares),
                                           mean_of("shared_update", update_shares)};
  if (disk != nullptr) {
    measurements.push_back(mean_of("compute_beside_read", compute_read));
    measurements.push_back(mean_of("compute_beside_write", compute_write));
    measurements.push_back(mean_of("update_beside_read", update_read));
    measurements.push_back(mean_of("update_beside_write", update_write));
    measurements.push_back(mean_of("read_beside_compute", read_compute));
    measurements.push_back(mean_of("write_beside_compute", write_compute));
  }
  return measurements;
}

}  // namespace spillway
