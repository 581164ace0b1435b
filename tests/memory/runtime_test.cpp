// A stream must keep the order of its work, run beside other streams, and wait for exactly the recorded events.
#include "memory/runtime/runtime.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <vector>

#include "memory/base/error.h"
#include "memory/base/random.h"

namespace spillway {
namespace {

// Work that stays under way until it is told to end.
struct Gate {
  std::atomic<bool> open{false};
  static void pass(void* gate) { static_cast<Gate*>(gate)->open.wait(false); }
  void release() {
    open.store(true);
    open.notify_all();
  }
};

struct Append {
  std::vector<int>* list;
  int value;
  static void run(void* context) {
    const auto& append = *static_cast<Append*>(context);
    append.list->push_back(append.value);
  }
};

TEST(CpuRuntime, AStreamRunsInOrderAndTheCallerGoesOn) {
  const auto runtime = Runtime::make_cpu();
  const auto stream = runtime->make_stream();
  Gate gate;
  std::vector<int> list;
  std::vector<Append> appends;
  for (int i = 0; i < 1000; ++i) appends.push_back({&list, i});
  stream->run(&Gate::pass, &gate);
  for (Append& append : appends) stream->run(&Append::run, &append);
  gate.release();  // had the caller been waiting for the stream, it would never come here
  stream->synchronize();
  ASSERT_EQ(list.size(), 1000u);
  EXPECT_TRUE(std::is_sorted(list.begin(), list.end()));
}

TEST(CpuRuntime, AFullStreamMakesTheCallerWaitAndLosesNothing) {
  const auto runtime = Runtime::make_cpu();
  const auto stream = runtime->make_stream();
  std::vector<int> list;
  Append append{&list, 1};
  for (int i = 0; i < 20000; ++i) stream->run(&Append::run, &append);
  stream->synchronize();
  EXPECT_EQ(list.size(), 20000u);
}

TEST(CpuRuntime, CopiesAreInOrder) {
  const auto runtime = Runtime::make_cpu();
  const auto stream = runtime->make_stream();
  const Bytes bytes = 3 * kMiB + 17;
  const Allocation host = runtime->allocate(Tier::host, bytes, "staging"),
                   device = runtime->allocate(Tier::device, bytes, "weights");
  EXPECT_EQ(device.bytes(), bytes);
  EXPECT_EQ(device.name(), "weights");
  std::memset(host.data(), 42, static_cast<std::size_t>(bytes));
  Gate gate;
  stream->run(&Gate::pass, &gate);
  stream->copy_async(device.data(), host.data(), bytes);
  stream->copy_async(device.data(), host.data(), 0);
  gate.release();
  stream->synchronize();
  EXPECT_EQ(std::memcmp(device.data(), host.data(), static_cast<std::size_t>(bytes)), 0);
}

TEST(CpuRuntime, AnEventThatWasNeverRecordedIsComplete) {
  const auto runtime = Runtime::make_cpu();
  const auto stream = runtime->make_stream();
  const auto event = runtime->make_event();
  EXPECT_TRUE(event->complete());
  event->synchronize();
  stream->wait(*event);
  stream->synchronize();
}

TEST(CpuRuntime, AnEventHoldsAnotherStreamButNotTheCaller) {
  const auto runtime = Runtime::make_cpu();
  const auto first = runtime->make_stream(), second = runtime->make_stream();
  const auto event = runtime->make_event(), after = runtime->make_event();
  Gate gate;
  std::vector<int> list;
  Append one{&list, 1}, two{&list, 2};
  first->run(&Gate::pass, &gate);
  first->run(&Append::run, &one);
  first->record(*event);
  second->wait(*event);
  second->run(&Append::run, &two);
  second->record(*after);
  EXPECT_FALSE(event->complete());
  EXPECT_FALSE(after->complete());
  gate.release();
  after->synchronize();
  EXPECT_TRUE(event->complete());
  EXPECT_EQ(list, (std::vector<int>{1, 2}));
}

// A wait is for the recording before it, not for later ones.
TEST(CpuRuntime, AWaitIsForTheLatestRecordingBeforeIt) {
  const auto runtime = Runtime::make_cpu();
  const auto first = runtime->make_stream(), second = runtime->make_stream();
  const auto event = runtime->make_event();
  Gate gate;
  first->record(*event);
  second->wait(*event);
  first->run(&Gate::pass, &gate);
  first->record(*event);
  second->synchronize();  // would never return if it waited for the second recording
  EXPECT_FALSE(event->complete());
  gate.release();
  event->synchronize();
  EXPECT_TRUE(event->complete());
}

TEST(CpuRuntime, AnEventBelongsToOneStream) {
  const auto runtime = Runtime::make_cpu();
  const auto first = runtime->make_stream(), second = runtime->make_stream();
  const auto event = runtime->make_event();
  first->record(*event);
  EXPECT_ANY_THROW(second->record(*event));
}

// Buffers walk around a ring of streams; each hop adds its own amount to the result of the hop before. A wait that is missed or
// comes too early gives another sum, and a race for ThreadSanitizer.
TEST(CpuRuntime, ManyStreamsPassBuffersAround) {
  constexpr int kStreams = 8, kHops = 4000;
  struct Hop {
    std::uint64_t* value;
    std::uint64_t factor;
    static void run(void* context) {
      const auto& hop = *static_cast<Hop*>(context);
      *hop.value = *hop.value * 3 + hop.factor;
    }
  };
  const auto runtime = Runtime::make_cpu();
  std::vector<std::unique_ptr<Stream>> streams;
  std::vector<std::unique_ptr<Event>> events;
  for (int s = 0; s < kStreams; ++s) streams.push_back(runtime->make_stream()), events.push_back(runtime->make_event());
  std::uint64_t value = 1, expected = 1;
  std::vector<Hop> hops;
  for (int i = 0; i < kHops; ++i) hops.push_back({&value, static_cast<std::uint64_t>(i)});
  int last = 0;
  for (int i = 0; i < kHops; ++i) {
    const auto s = static_cast<int>(random_bits(1, 0, 0, static_cast<std::uint64_t>(i)) % kStreams);
    streams[s]->wait(*events[last]);
    streams[s]->run(&Hop::run, &hops[i]);
    streams[s]->record(*events[s]);
    last = s;
    expected = expected * 3 + static_cast<std::uint64_t>(i);
  }
  events[last]->synchronize();
  EXPECT_EQ(value, expected);
}

TEST(CpuRuntime, AStreamFinishesItsWorkBeforeItEnds) {
  const auto runtime = Runtime::make_cpu();
  std::vector<int> list;
  Append append{&list, 1};
  {
    const auto stream = runtime->make_stream();
    for (int i = 0; i < 100; ++i) stream->run(&Append::run, &append);
  }
  EXPECT_EQ(list.size(), 100u);
}

// The host names addresses of the device and may not touch them; copies go through, and the device's own code has others.
TEST(CpuApart, MemoryOfTheDeviceIsNotTheHosts) {
  const auto runtime = Runtime::make_cpu_apart();
  const Bytes bytes = 5000;
  const Allocation device = runtime->allocate(Tier::device, bytes, "device"), host = runtime->allocate(Tier::host, bytes, "host");
  std::byte* const inside = runtime->device_pointer(device.data());
  EXPECT_NE(inside, device.data());
  EXPECT_EQ(runtime->device_pointer(device.data() + 4999), inside + 4999);
  EXPECT_EQ(runtime->device_pointer(host.data()), host.data());
  std::memset(host.data(), 7, static_cast<std::size_t>(bytes));
  const auto stream = runtime->make_stream();
  stream->copy_async(device.data() + 1000, host.data(), 100);
  stream->copy_async(host.data() + 3000, device.data() + 999, 102);
  stream->synchronize();
  EXPECT_EQ(inside[1000], std::byte{7});
  EXPECT_EQ(inside[1100], std::byte{0});
  EXPECT_EQ(host.data()[3000], std::byte{0});
  EXPECT_EQ(host.data()[3001], std::byte{7});
  EXPECT_EQ(host.data()[3101], std::byte{0});
  // While the caller waits, to and from memory of anybody's.
  std::array<std::byte, 4> mine{std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}};
  runtime->copy(device.data() + 2000, mine.data(), 3);
  mine.fill(std::byte{0});
  runtime->copy(mine.data(), device.data() + 2001, 3);
  EXPECT_THAT(mine, testing::ElementsAre(std::byte{2}, std::byte{3}, std::byte{0}, std::byte{0}));
  EXPECT_NO_THROW(runtime->copy(nullptr, nullptr, 0));
  EXPECT_EXIT(*const_cast<volatile std::byte*>(device.data()) = std::byte{1}, ::testing::KilledBySignal(SIGSEGV), "");
  EXPECT_NO_THROW(runtime->allocate(Tier::device, 0, "nothing"));
}

TEST(CpuRuntime, KnowsItsMemory) {
  const auto runtime = Runtime::make_cpu();
  const MemoryInfo info = runtime->memory_info();
  EXPECT_GT(info.total, 0);
  EXPECT_GT(info.free, 0);
  EXPECT_LE(info.free, info.total);
  EXPECT_THAT(runtime->describe(), testing::HasSubstr("CPU"));
  EXPECT_THROW(runtime->allocate(Tier::host, Bytes{1} << 62, "staging"), BudgetError);
  EXPECT_ANY_THROW(runtime->allocate(Tier::nvme, 1, "x"));
}

// The same walk on a GPU where there is one; else the refusal must say what to do.
TEST(CudaRuntime, CopiesThroughTheDeviceOrSaysWhyNot) {
  std::unique_ptr<Runtime> runtime;
  try {
    runtime = Runtime::make_cuda(0);
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("CUDA"));
    EXPECT_THAT(error.help(), testing::HasSubstr("--device cpu"));
    GTEST_SKIP() << error.what();
  }
  const Bytes bytes = 8 * kMiB + 4;
  const Allocation from = runtime->allocate(Tier::host, bytes, "from"), to = runtime->allocate(Tier::host, bytes, "to");
  const Allocation device = runtime->allocate(Tier::device, bytes, "device");
  const auto up = runtime->make_stream(), down = runtime->make_stream();
  const auto event = runtime->make_event();
  std::memset(from.data(), 42, static_cast<std::size_t>(bytes));
  up->copy_async(device.data(), from.data(), bytes);
  up->record(*event);
  down->wait(*event);
  down->copy_async(to.data(), device.data(), bytes);
  std::vector<int> list;
  Append append{&list, 5};
  down->run(&Append::run, &append);
  down->synchronize();
  EXPECT_EQ(list, std::vector<int>{5});
  EXPECT_EQ(std::memcmp(from.data(), to.data(), static_cast<std::size_t>(bytes)), 0);
  // While the caller waits, to and from memory of anybody's.
  std::vector<std::byte> mine(1000, std::byte{9});
  runtime->copy(device.data() + 8, mine.data(), 1000);
  mine.assign(1000, std::byte{0});
  runtime->copy(mine.data(), device.data() + 7, 1000);
  EXPECT_EQ(mine[0], std::byte{42});
  EXPECT_EQ(mine[1], std::byte{9});
  EXPECT_EQ(mine[999], std::byte{9});
  EXPECT_THROW(runtime->allocate(Tier::device, Bytes{1} << 50, "huge"), BudgetError);
  EXPECT_THROW(Runtime::make_cuda(1000), InputError);
}

}  // namespace
}  // namespace spillway
