// Measures the link between a device and its host: bytes a second in each direction alone and in both at once, and the slow-down
// of the link and the host's updates by each other. Plans for machines with devices of their own use these figures (upload_bytes,
// mixed_upload_bytes, ... of memory/plan/machine.h; pairs_of in memory/search/lane_speeds.cpp). Runs with a GPU if there is one,
// and with cpu-apart.
#include <benchmark/benchmark.h>
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "memory/base/error.h"
#include "memory/base/parallel.h"
#include "memory/runtime/arena.h"
#include "memory/runtime/runtime.h"
#include "offload/host_adamw.h"

namespace spillway {
namespace {

constexpr Bytes kCopied = 128 * kMiB;                       // bytes of one copy
constexpr std::int64_t kElements = std::int64_t{32} << 20;  // elements of the updated state: far beyond the last cache
constexpr std::chrono::milliseconds kLong(700);

enum Load : unsigned { kUpload = 1, kDownload = 2, kUpdate = 4 };
constexpr std::array<std::pair<Load, const char*>, 3> kLoads = {
    {{kUpload, "upload"}, {kDownload, "download"}, {kUpdate, "update"}}};

class Machine {
 public:
  explicit Machine(std::unique_ptr<Runtime> runtime)
      : runtime_(std::move(runtime)),
        pool_(static_cast<int>(std::thread::hardware_concurrency())),
        arena_(16 * kElements, "state that is updated") {
    arena_.prefault(pool_);
    std::fill_n(arena_.at(0), arena_.bytes(), std::byte{0x3c});
    for (Way& way : ways_) {
      way.on_host = std::make_unique<Allocation>(runtime_->allocate(Tier::host, kCopied, "what is copied"));
      way.on_device = std::make_unique<Allocation>(runtime_->allocate(Tier::device, kCopied, "what is copied"));
      way.stream = runtime_->make_stream();
    }
    for (std::size_t i = 0; i < kLoads.size(); ++i) {
      rates(kLoads[i].first);  // warm
      alone_[i] = rates(kLoads[i].first)[i];
    }
  }

  // Bytes a second of each load while all of them run; updates count the bytes that they read and write.
  std::array<double, 3> rates(unsigned loads) {
    std::array<double, 3> bytes{};
    std::atomic<bool> over{false};
    std::vector<std::thread> threads;
    const auto began = std::chrono::steady_clock::now();
    for (std::size_t i = 0; i < kLoads.size(); ++i) {
      if ((loads & kLoads[i].first) == 0) continue;
      threads.emplace_back([&, i] {
        while (!over.load(std::memory_order_relaxed)) bytes[i] += once(kLoads[i].first);
        bytes[i] /= std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
      });
    }
    std::this_thread::sleep_for(kLong);
    over.store(true);
    for (std::thread& thread : threads) thread.join();
    return bytes;
  }
  const std::array<double, 3>& alone() const { return alone_; }
  std::string name() const { return runtime_->describe(); }

 private:
  struct Way {
    std::unique_ptr<Allocation> on_host, on_device;
    std::unique_ptr<Stream> stream;
  };

  double once(Load load) {
    if (load == kUpdate) return update();
    Way& way = ways_[load == kUpload ? 0 : 1];
    std::byte *host = way.on_host->data(), *device = way.on_device->data();
    way.stream->copy_async(load == kUpload ? device : host, load == kUpload ? host : device, kCopied);
    way.stream->synchronize();
    return static_cast<double>(kCopied);
  }
  double update() {
    pool_.parallel_for(kElements / kAdamWChunk, [&](std::int64_t task, int) {
      const std::int64_t at = task * kAdamWChunk;
      const ExactState state{array<BFloat16>(0, at), array<std::int16_t>(2, at), array<float>(4, at), array<float>(8, at)};
      host_adamw({.step = 5, .lr = 1e-4, .weight_decay = 0.1}, {.begin = at, .count = kAdamWChunk}, source_of(state),
                 array<float>(12, at), state);
    });
    return 28.0 * kElements;
  }
  template <typename T>
  T* array(std::int64_t place, std::int64_t element) {
    return reinterpret_cast<T*>(arena_.at(place * kElements)) + element;
  }

  const std::unique_ptr<Runtime> runtime_;
  const ThreadPool pool_;
  Arena arena_;
  std::array<Way, 2> ways_;
  std::array<double, 3> alone_{};
};

template <std::unique_ptr<Runtime> (*make)()>
void link(benchmark::State& state) {
  try {
    static Machine machine(make());
    const auto loads = static_cast<unsigned>(state.range(0));
    const std::array<double, 3>& whole = machine.alone();
    std::array<double, 3> rates{};
    for (auto _ : state) rates = machine.rates(loads);
    std::string label = machine.name() + ":";
    double by_bytes = 1;  // share left to updates beside these copies, if a profile does not say
    for (std::size_t i = 0; i < kLoads.size(); ++i) {
      if ((loads & kLoads[i].first) == 0) continue;
      label += fmt::format(" {} {:.1f} GB/s, {:.2f} of alone;", kLoads[i].second, rates[i] / 1e9, rates[i] / whole[i]);
      if (kLoads[i].first != kUpdate) by_bytes *= std::max(0.1, 1 - rates[i] / whole[2]);
    }
    if ((loads & kUpdate) != 0) label += fmt::format(" {:.2f} by the copies' bytes", by_bytes);
    state.SetLabel(label);
  } catch (const Error& error) {
    state.SkipWithError(error.what());
  }
}

std::unique_ptr<Runtime> first_gpu() { return Runtime::make_cuda(0); }

void combinations(benchmark::internal::Benchmark* of) {
  for (unsigned loads = 1; loads < 8; ++loads) of->Arg(loads);
  of->ArgName("loads")->Iterations(1)->Unit(benchmark::kMillisecond);
}
BENCHMARK(link<first_gpu>)->Apply(combinations);
BENCHMARK(link<Runtime::make_cpu_apart>)->Apply(combinations);

}  // namespace
}  // namespace spillway

BENCHMARK_MAIN();
