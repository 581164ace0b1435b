// Measures how fast the NVMe store reads, writes, and does both at once, with each queue. tools/bench/store_vs_fio.py compares it
// with fio.
// Flags besides Google Benchmark's: --nvme=DIR (repeatable), --bytes=N, --block-bytes=N, --stripe-bytes=N, --depth=N,
// --memory-bytes=N, --seconds=S, and --keep=1: the files stay, for the next run to use.
#include <benchmark/benchmark.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "memory/base/error.h"
#include "nvme/store.h"

namespace spillway {
namespace {

using Clock = std::chrono::steady_clock;

struct BenchOptions {
  std::vector<StoreDirectory> directories;
  Bytes bytes = kGiB;
  Bytes block_bytes = StoreOptions{}.block_bytes;
  Bytes stripe_bytes = StoreOptions{}.stripe_bytes;
  int depth = StoreOptions{}.depth;
  Bytes memory_bytes = 128 * kMiB;  // memory that a lane reads into or writes from, in turn; a multiple of 4 MiB
  double seconds = 0.5;
  bool keep = false;
};

// One lane: operations of 64 MiB (about a layer), two in flight, over [begin, end) of the store again and again.
class Lane {
 public:
  static constexpr Bytes kOperationBytes = 64 * kMiB;
  static constexpr Bytes kSegmentBytes = 4 * kMiB;
  static constexpr int kInFlight = 2;

  Lane(Store& store, Bytes memory_bytes)
      : memory_bytes_(memory_bytes),
        memory_(static_cast<std::byte*>(std::aligned_alloc(2 * kMiB, static_cast<std::size_t>(memory_bytes))), std::free) {
    // On huge pages if there are any, like the arenas of a run.
    madvise(memory_.get(), static_cast<std::size_t>(memory_bytes), MADV_HUGEPAGE);
    std::fill_n(memory_.get(), memory_bytes, std::byte{0x5A});
    const std::span<std::byte> arena(memory_.get(), static_cast<std::size_t>(memory_bytes));
    channel_.emplace(store.open_channel({.registered = {&arena, 1}}));
  }

  // Returns the bytes moved.
  Bytes run(IoDirection direction, Bytes begin, Bytes end, Clock::time_point deadline) {
    std::vector<std::pair<IoTicket, Bytes>> in_flight;
    Bytes moved = 0;
    Bytes at = begin;
    Bytes in_memory = 0;
    auto finish_oldest = [&] {
      channel_->wait(in_flight.front().first);
      moved += in_flight.front().second;
      in_flight.erase(in_flight.begin());
    };
    do {
      std::vector<IoSegment> segments;
      const Bytes stop = std::min(end, at + kOperationBytes);
      for (Bytes offset = at; offset < stop; offset += kSegmentBytes) {
        segments.push_back({offset, memory_.get() + in_memory, std::min(kSegmentBytes, stop - offset)});
        in_memory = (in_memory + kSegmentBytes) % memory_bytes_;
      }
      in_flight.emplace_back(channel_->start(direction, segments), stop - at);
      at = stop == end ? begin : stop;
      if (in_flight.size() == kInFlight) finish_oldest();
    } while (Clock::now() < deadline);
    while (!in_flight.empty()) finish_oldest();
    return moved;
  }

 private:
  Bytes memory_bytes_;
  std::unique_ptr<std::byte, void (*)(void*)> memory_;
  std::optional<StoreChannel> channel_;
};

double process_cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         1e-6 * static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

Store open_store(const BenchOptions& options, IoQueueKind queue) {
  const bool kept = std::filesystem::exists(options.directories[0].path + "/spillway-store.bin");
  StoreOptions store_options{.directories = options.directories, .bytes = options.bytes};
  store_options.content = options.keep && kept ? StoreContent::existing : StoreContent::fresh;
  store_options.queue = queue;
  store_options.block_bytes = options.block_bytes;
  store_options.stripe_bytes = options.stripe_bytes;
  store_options.depth = options.depth;
  store_options.log = [](std::string_view message) { std::cerr << message << '\n'; };
  Store store(store_options);
  if (store_options.content == StoreContent::fresh) {
    // Blocks that were never written are not read from the disk at all, and their first write costs more.
    Lane lane(store, options.memory_bytes);
    for (Bytes at = 0; at < options.bytes; at += Lane::kOperationBytes) {
      lane.run(IoDirection::write, at, std::min(options.bytes, at + Lane::kOperationBytes), Clock::now());
    }
    if (options.keep) store.keep();
  }
  return store;
}

enum class Load { read, write, mix };

void run_load(benchmark::State& state, const BenchOptions& options, IoQueueKind queue, Load load) {
  Store store = open_store(options, queue);
  Lane first(store, options.memory_bytes);
  std::optional<Lane> second;
  if (load == Load::mix) second.emplace(store, options.memory_bytes);
  Bytes moved = 0;
  const double cpu_before = process_cpu_seconds();
  for (auto _ : state) {
    const auto begin = Clock::now();
    const auto deadline = begin + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(options.seconds));
    if (load == Load::mix) {
      // Reads one half and writes the other; each lane has a depth of its own.
      const Bytes half = round_up(options.bytes / 2, kExtentAlignment);
      Bytes written = 0;
      std::thread writer([&] { written = second->run(IoDirection::write, half, options.bytes, deadline); });
      moved += first.run(IoDirection::read, 0, half, deadline);
      writer.join();
      moved += written;
    } else {
      moved += first.run(load == Load::read ? IoDirection::read : IoDirection::write, 0, options.bytes, deadline);
    }
    state.SetIterationTime(std::chrono::duration<double>(Clock::now() - begin).count());
  }
  state.SetBytesProcessed(moved);
  state.counters["cpu_us_per_MiB"] =
      (process_cpu_seconds() - cpu_before) * 1e6 / (static_cast<double>(moved) / static_cast<double>(kMiB));
}

// Removes our flags from argv.
BenchOptions parse(int& argc, char** argv) {
  BenchOptions options;
  const auto ours = [&](const std::string& argument) {
    const auto equals = argument.find('=');
    if (equals == std::string::npos) return false;
    const std::string name = argument.substr(0, equals), value = argument.substr(equals + 1);
    if (name == "--nvme")
      options.directories.push_back({value, 0});
    else if (name == "--bytes")
      options.bytes = std::stoll(value);
    else if (name == "--block-bytes")
      options.block_bytes = std::stoll(value);
    else if (name == "--stripe-bytes")
      options.stripe_bytes = std::stoll(value);
    else if (name == "--depth")
      options.depth = std::stoi(value);
    else if (name == "--memory-bytes")
      options.memory_bytes = round_up(std::stoll(value), Lane::kSegmentBytes);
    else if (name == "--seconds")
      options.seconds = std::stod(value);
    else if (name == "--keep")
      options.keep = value == "1";
    else
      return false;
    return true;
  };
  argc = static_cast<int>(std::remove_if(argv + 1, argv + argc, ours) - argv);
  if (options.directories.empty()) options.directories.push_back({std::filesystem::path(argv[0]).parent_path().string(), 0});
  return options;
}

}  // namespace
}  // namespace spillway

int main(int argc, char** argv) {
  using namespace spillway;
  const BenchOptions options = parse(argc, argv);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  for (const IoQueueKind queue : {IoQueueKind::io_uring, IoQueueKind::threads}) {
    for (const auto& [load, name] :
         {std::pair(Load::read, "read"), std::pair(Load::write, "write"), std::pair(Load::mix, "mix")}) {
      benchmark::RegisterBenchmark(fmt::format("store/{}/{}", name_of(queue), name).c_str(),
                                   [&options, queue, given = load](benchmark::State& state) {
                                     try {
                                       run_load(state, options, queue, given);
                                     } catch (const Error& error) {
                                       state.SkipWithError(error.what());
                                     }
                                   })
          ->Iterations(1)
          ->UseManualTime()
          ->Unit(benchmark::kMillisecond);
    }
  }
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
