// Measures the cost of hashing the state that an update reads and leaves: CPU nanoseconds for each element of AdamW alone, with
// hashes taken piece by piece around it as for durable state, and with separate hash passes over the same memory. They run in
// turns because a machine's bandwidth drifts; the medians of all turns count. CPU time, because other programs disturb it least.
#include <benchmark/benchmark.h>
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "memory/base/parallel.h"
#include "memory/runtime/arena.h"
#include "nvme/content_hash.h"
#include "offload/host_adamw.h"
#include "tools/bench/cpu_seconds.h"

namespace spillway {
namespace {

constexpr std::int64_t kElements = std::int64_t{16} << 20;  // far beyond the last cache
constexpr std::int64_t kTurn = std::int64_t{2} << 20;       // elements of an update
constexpr int kTurns = 200;

enum class Hashes : std::uint8_t { none, around, passes };

class HashedUpdate {
 public:
  explicit HashedUpdate(int threads) : pool_(threads), arena_(16 * kElements, "benchmark") {
    arena_.prefault(pool_);
    std::fill_n(arena_.at(0), arena_.bytes(), std::byte{0x3c});  // 0.0115 in every type
  }

  void run(std::int64_t begin, Hashes hashes) {
    if (hashes == Hashes::passes) hash(begin, kTurn);
    pool_.parallel_for(kTurn / kAdamWChunk, [&](std::int64_t task, int) {
      const std::int64_t at = begin + task * kAdamWChunk;
      if (hashes == Hashes::around) hash(at, kAdamWChunk);
      const ExactState state{array<BFloat16>(0, at), array<std::int16_t>(2, at), array<float>(4, at), array<float>(8, at)};
      host_adamw({.step = 5, .lr = 1e-4, .weight_decay = 0.1}, {.begin = at, .count = kAdamWChunk}, source_of(state),
                 array<float>(12, at), state);
      if (hashes == Hashes::around) hash(at, kAdamWChunk);
    });
    if (hashes == Hashes::passes) hash(begin, kTurn);
  }

 private:
  // The array that begins `place` bytes for each element into the arena.
  template <typename T>
  T* array(std::int64_t place, std::int64_t element) {
    return reinterpret_cast<T*>(arena_.at(place * kElements)) + element;
  }
  void hash(std::int64_t begin, std::int64_t count) {
    for (const auto& [place, each] : {std::array{0, 2}, std::array{2, 2}, std::array{4, 4}, std::array{8, 4}}) {
      const std::byte* const first = arena_.at(place * kElements + begin * each);
      for (Bytes at = 0; at < count * each; at += kHashedPieceBytes)
        found_ += content_hash({first + at, static_cast<std::size_t>(kHashedPieceBytes)});
    }
  }

  const ThreadPool pool_;
  Arena arena_;
  std::atomic<std::uint64_t> found_{0};
};

void hashed_update(benchmark::State& state) {
  HashedUpdate update(static_cast<int>(state.range(0)));
  std::array<std::vector<double>, 3> taken;
  std::int64_t begin = 0;
  for (auto _ : state) {
    for (const Hashes hashes : {Hashes::none, Hashes::around, Hashes::passes}) {
      const double before = cpu_seconds();
      update.run(begin, hashes);
      taken[static_cast<std::size_t>(hashes)].push_back((cpu_seconds() - before) / static_cast<double>(kTurn) * 1e9);
      begin = (begin + kTurn) % kElements;
    }
    state.SetIterationTime(1e-9 * taken[1].back() * static_cast<double>(kTurn));
  }
  std::array<double, 3> median{};
  for (std::size_t i = 0; i < taken.size(); ++i) {
    std::ranges::sort(taken[i]);
    median[i] = taken[i][taken[i].size() / 2];
  }
  state.counters["alone_ns"] = median[0];
  state.counters["hashed_ns"] = median[1];
  state.counters["passes_ns"] = median[2];
  state.SetLabel(fmt::format("an element: {:.2f} ns alone, {:.2f} with hashes around, {:.2f} with passes of their own", median[0],
                             median[1], median[2]));
}

BENCHMARK(hashed_update)->ArgName("threads")->Arg(1)->Arg(2)->Iterations(kTurns)->UseManualTime()->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace spillway

BENCHMARK_MAIN();
