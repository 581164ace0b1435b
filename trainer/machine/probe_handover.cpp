#include <atomic>
#include <chrono>
#include <thread>

#include "memory/base/prompt_thread.h"
#include "offload/lane_progress.h"
#include "trainer/machine/probe_measure.h"

namespace spillway {

std::vector<Measurement> measure_handover(const Sampling& sampling) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::microseconds kWork(200);  // long enough for the other lane to fall asleep
  const std::uint32_t count = static_cast<std::uint32_t>(sampling.samples) * 10;
  LaneProgress progress;
  std::atomic<Clock::time_point> completed{};
  std::vector<double> seconds;
  seconds.reserve(count);
  std::thread other([&] {
    make_thread_prompt();
    for (std::uint32_t i = 1; i <= count; ++i) {
      progress.wait(Lane::compute, i);
      seconds.push_back(std::chrono::duration<double>(Clock::now() - completed.load()).count());
      progress.complete(Lane::update);
    }
  });
  for (std::uint32_t i = 1; i <= count; ++i) {
    for (const auto begin = Clock::now(); Clock::now() - begin < kWork;) {
    }
    completed.store(Clock::now());
    progress.complete(Lane::compute);
    progress.wait(Lane::update, i);
  }
  other.join();
  return {middle_of("operation_s", std::move(seconds))};
}

}  // namespace spillway
