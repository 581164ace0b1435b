// Tests that the emulated runtime keeps the promises of memory/runtime/runtime.h, and that missing waits are noticed: each
// protocol here is right for every seed, and wrong for some seeds without one of its waits.
#include "tests/simt/runtime.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstring>
#include <vector>

#include "memory/base/error.h"
#include "tests/simt/gpu.h"

namespace spillway::simt {
namespace {

using testing::HasSubstr;

constexpr std::int64_t kElements = 256;
constexpr Bytes kBytes = kElements * 4;

// y = 2 x.
struct Double {
  static constexpr int kThreads = 64;
  const float* x;
  float* y;
  void operator()(const Gpu& gpu) const {
    const std::int64_t i = gpu.block() * kThreads + gpu.thread();
    gpu.store(y + i, 2 * gpu.load(x + i));
  }
};

// One device with a stream each for what comes, what is computed, and what goes.
struct Machine {
  explicit Machine(std::uint64_t seed) : runtime(make_runtime({.seed = seed})) {}
  void compute(const Allocation& from, const Allocation& to) {
    launch(queue, {kElements / Double::kThreads}, Double{floats(from), floats(to)});
  }
  static float* floats(const Allocation& of) { return reinterpret_cast<float*>(of.data()); }
  static void fill(const Allocation& of, float x) { std::fill_n(floats(of), kElements, x); }
  static bool holds(const Allocation& of, float x) {
    return std::all_of(floats(of), floats(of) + kElements, [x](float y) { return x == y; });
  }

  const std::unique_ptr<Runtime> runtime;
  const Allocation source = runtime->allocate(Tier::host, kBytes, "source"), x = runtime->allocate(Tier::device, kBytes, "x"),
                   y = runtime->allocate(Tier::device, kBytes, "y"), target = runtime->allocate(Tier::host, kBytes, "target");
  const std::unique_ptr<Stream> up = runtime->make_stream(), work = runtime->make_stream(), down = runtime->make_stream();
  Queue queue{work->native_handle()};
  const std::unique_ptr<Event> came = runtime->make_event(), done = runtime->make_event(), went = runtime->make_event();
};

// The number of seeds with which a protocol goes wrong.
template <typename Protocol>
int wrong_of(const Protocol& is_right) {
  int wrong = 0;
  for (std::uint64_t seed = 0; seed < 64; ++seed) wrong += is_right(seed) ? 0 : 1;
  return wrong;
}

// Two rounds through the same buffers. One of the waits may be left out.
enum class Without : std::uint8_t { nothing, came, done, went };
bool pipeline(std::uint64_t seed, Without without) {
  Machine m(seed);
  bool is_right = true;
  for (const float round : {1.0f, 2.0f}) {
    m.fill(m.source, round);
    m.up->copy_async(m.x.data(), m.source.data(), kBytes);
    m.up->record(*m.came);
    if (without != Without::came) m.work->wait(*m.came);
    m.compute(m.x, m.y);
    m.work->record(*m.done);
    if (without != Without::done) m.down->wait(*m.done);
    m.down->copy_async(m.target.data(), m.y.data(), kBytes);
    m.down->record(*m.went);
    if (without != Without::went) m.went->synchronize();
    is_right &= m.holds(m.target, 2 * round);
    m.up->synchronize(), m.work->synchronize(), m.down->synchronize();
  }
  return is_right;
}

TEST(EmulatedRuntime, WhatWaitsIsRightForEverySeed) {
  EXPECT_EQ(wrong_of([](std::uint64_t seed) { return pipeline(seed, Without::nothing); }), 0);
}

TEST(PlantedInStreams, AKernelThatDoesNotWaitForItsCopy) {
  EXPECT_GT(wrong_of([](std::uint64_t seed) { return pipeline(seed, Without::came); }), 32);
}
TEST(PlantedInStreams, ACopyThatDoesNotWaitForItsKernel) {
  EXPECT_GT(wrong_of([](std::uint64_t seed) { return pipeline(seed, Without::done); }), 32);
}
TEST(PlantedInStreams, AHostThatReadsBeforeItHasSynchronized) {
  EXPECT_GT(wrong_of([](std::uint64_t seed) { return pipeline(seed, Without::went); }), 32);
}

// The host writes the next content to memory that a copy has not yet read.
bool reuse_by_host(std::uint64_t seed, bool waits) {
  Machine m(seed);
  m.fill(m.source, 1);
  m.up->copy_async(m.x.data(), m.source.data(), kBytes);
  m.up->record(*m.came);
  if (waits) m.came->synchronize();
  m.fill(m.source, 2);
  m.work->wait(*m.came);
  m.compute(m.x, m.y);
  m.work->copy_async(m.target.data(), m.y.data(), kBytes);
  m.work->synchronize();
  return m.holds(m.target, 2);
}
TEST(PlantedInStreams, ABufferOfTheHostThatIsReusedBeforeItsCopy) {
  EXPECT_EQ(wrong_of([](std::uint64_t seed) { return reuse_by_host(seed, true); }), 0);
  EXPECT_GT(wrong_of([](std::uint64_t seed) { return reuse_by_host(seed, false); }), 32);
}

// A copy writes the next content to memory that a kernel has not yet read, or a kernel to memory that a copy has not yet read.
bool reuse_on_device(std::uint64_t seed, bool waits, bool by_kernel) {
  Machine m(seed);
  const Allocation other = m.runtime->allocate(Tier::device, kBytes, "other"),
                   next = m.runtime->allocate(Tier::host, kBytes, "next");
  m.fill(m.source, 1), m.fill(next, 5);
  m.runtime->copy(m.x.data(), m.source.data(), kBytes);
  m.runtime->copy(other.data(), next.data(), kBytes);
  m.compute(m.x, m.y);
  m.work->record(*m.done);
  m.down->wait(*m.done);
  m.down->copy_async(m.target.data(), m.y.data(), kBytes);
  m.down->record(*m.went);
  if (by_kernel) {
    if (waits) m.work->wait(*m.went);
    m.compute(other, m.y);
    m.work->synchronize();
  } else {
    if (waits) m.up->wait(*m.done);
    m.up->copy_async(m.x.data(), next.data(), kBytes);
    m.up->synchronize();
  }
  m.down->synchronize();
  return m.holds(m.target, 2);
}
TEST(PlantedInStreams, ABufferOfTheDeviceThatIsReusedBeforeItIsRead) {
  for (const bool by_kernel : {false, true}) {
    EXPECT_EQ(wrong_of([&](std::uint64_t seed) { return reuse_on_device(seed, true, by_kernel); }), 0);
    EXPECT_GT(wrong_of([&](std::uint64_t seed) { return reuse_on_device(seed, false, by_kernel); }), 16);
  }
}

// A wait is for what was recorded before it: a wait that comes too soon waits for nothing.
bool records_in_time(std::uint64_t seed, bool in_time) {
  Machine m(seed);
  m.fill(m.source, 3);
  if (!in_time) m.work->wait(*m.came);
  m.up->copy_async(m.x.data(), m.source.data(), kBytes);
  m.up->record(*m.came);
  if (in_time) m.work->wait(*m.came);
  m.compute(m.x, m.y);
  m.work->copy_async(m.target.data(), m.y.data(), kBytes);
  m.work->synchronize();
  return m.holds(m.target, 6);
}
TEST(PlantedInStreams, AWaitBeforeTheRecording) {
  EXPECT_EQ(wrong_of([](std::uint64_t seed) { return records_in_time(seed, true); }), 0);
  EXPECT_GT(wrong_of([](std::uint64_t seed) { return records_in_time(seed, false); }), 32);
}

// Two copies that do not wait for each other come in either order: relying on one order is wrong by some seed.
TEST(PlantedInStreams, AnOrderThatNobodyPromised) {
  bool first_was_last = false, second_was_last = false;
  for (std::uint64_t seed = 0; seed < 64; ++seed) {
    Machine m(seed);
    m.fill(m.source, 1), m.fill(m.target, 2);
    m.up->copy_async(m.x.data(), m.source.data(), kBytes);
    m.down->copy_async(m.x.data(), m.target.data(), kBytes);
    m.up->synchronize(), m.down->synchronize();
    m.runtime->copy(m.source.data(), m.x.data(), kBytes);
    (m.holds(m.source, 1) ? first_was_last : second_was_last) = true;
  }
  EXPECT_TRUE(first_was_last);
  EXPECT_TRUE(second_was_last);
}

TEST(PlantedInStreamsDeathTest, ATouchOfTheDevicesMemory) {
  const Machine m(0);
  EXPECT_EXIT(m.fill(m.x, 1), testing::KilledBySignal(SIGSEGV), "");
}

template <typename F>
std::string error_of(const F& f) {
  try {
    f();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

TEST(PlantedInStreams, MemoryThatIsNotTheRuntimes) {
  const Machine m(0);
  std::vector<std::byte> elsewhere(kBytes);
  EXPECT_THAT(error_of([&] { m.up->copy_async(m.x.data(), elsewhere.data(), kBytes); }), HasSubstr("the source of a copy"));
  EXPECT_THAT(error_of([&] { m.up->copy_async(m.x.data() + 4, m.source.data(), kBytes); }), HasSubstr("the target of a copy"));
  // A copy that the caller waits for may read from anywhere.
  std::memset(elsewhere.data(), 0, kBytes);
  m.runtime->copy(m.x.data(), elsewhere.data(), kBytes);
  m.down->copy_async(m.target.data(), m.x.data(), kBytes);
  m.down->synchronize();
  EXPECT_TRUE(m.holds(m.target, 0));
}

TEST(PlantedInStreams, MemoryThatEndsBeforeItsCopy) {
  const Machine m(0);
  {
    const Allocation brief = m.runtime->allocate(Tier::device, kBytes, "brief");
    m.down->copy_async(m.target.data(), brief.data(), kBytes);
  }
  EXPECT_THAT(error_of([&] { m.down->synchronize(); }), HasSubstr("in no allocation"));
}

// A kernel's error is thrown to whoever waits for the kernel, and to all who wait after that.
TEST(PlantedInStreams, AKernelOutOfItsMemory) {
  Machine m(0);
  const Allocation small = m.runtime->allocate(Tier::device, kBytes / 2, "small");
  m.compute(small, m.y);
  EXPECT_THAT(error_of([&] { m.work->synchronize(); }), HasSubstr("in no allocation"));
  EXPECT_THAT(error_of([&] { m.down->synchronize(); }), HasSubstr("in no allocation"));
}

TEST(EmulatedRuntime, TheSameSeedIsTheSameOrder) {
  const auto order_of = [](std::uint64_t seed) {
    Machine m(seed);
    std::vector<int> order;
    for (int i = 0; i < 20; ++i) {
      for (const auto* stream : {&m.up, &m.work, &m.down})
        static_cast<Later*>((*stream)->native_handle())->enqueue([&order, stream, &m] {
          order.push_back(stream == &m.up ? 0 : stream == &m.work ? 1 : 2);
        });
    }
    m.work->synchronize(), m.up->synchronize(), m.down->synchronize();
    return order;
  };
  bool differs = false;
  for (std::uint64_t seed = 1; seed < 9; ++seed) {
    EXPECT_EQ(order_of(seed), order_of(seed));
    differs |= order_of(seed) != order_of(0);
  }
  EXPECT_TRUE(differs);
}

// Nothing is done before somebody waits for it, and then only what the wait needs.
TEST(EmulatedRuntime, AsLateAsItMay) {
  Machine m(0);
  m.fill(m.source, 1), m.fill(m.target, 0);
  m.up->copy_async(m.target.data(), m.source.data(), 4);
  m.up->record(*m.came);
  m.up->copy_async(m.target.data() + 4, m.source.data(), 4);
  m.down->copy_async(m.target.data() + 8, m.source.data(), 4);
  m.work->wait(*m.came);
  EXPECT_EQ(m.floats(m.target)[0], 0);
  m.work->synchronize();
  EXPECT_EQ(m.floats(m.target)[0], 1);
  EXPECT_EQ(m.floats(m.target)[1], 0);
  EXPECT_EQ(m.floats(m.target)[2], 0);
}

TEST(EmulatedRuntime, WhoAsksAgainAndAgainGetsThere) {
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    Machine m(seed);
    EXPECT_TRUE(m.came->complete());  // never recorded
    for (int i = 0; i < 50; ++i) m.up->copy_async(m.x.data(), m.source.data(), kBytes);
    m.up->record(*m.came);
    while (!m.came->complete()) {
    }
  }
}

// A function may block until another thread, or a later call of this one, lets it go on. Meanwhile other streams go on.
TEST(EmulatedRuntime, AFunctionThatBlocksHoldsItsStreamAlone) {
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    Machine m(seed);
    std::atomic<bool> open{false};
    m.fill(m.source, 1);
    m.up->run([](void* gate) { static_cast<std::atomic<bool>*>(gate)->wait(false); }, &open);
    m.up->copy_async(m.x.data(), m.source.data(), kBytes);
    m.up->record(*m.came);
    EXPECT_FALSE(m.came->complete());
    EXPECT_FALSE(m.came->complete());
    m.down->copy_async(m.target.data(), m.source.data(), kBytes);
    m.down->synchronize();
    EXPECT_TRUE(m.holds(m.target, 1));
    open = true;
    open.notify_all();
    m.work->wait(*m.came);
    m.compute(m.x, m.y);
    m.work->synchronize();
  }
}

TEST(EmulatedRuntime, AFunctionThatCallsTheRuntimeIsAnError) {
  Machine m(0);
  m.up->run([](void* machine) { static_cast<Machine*>(machine)->down->record(*static_cast<Machine*>(machine)->went); }, &m);
  EXPECT_THAT(error_of([&] { m.up->synchronize(); }), HasSubstr("calls the runtime"));
}

TEST(EmulatedRuntime, AnEventIsOfOneStream) {
  const Machine m(0);
  m.up->record(*m.came);
  EXPECT_THAT(error_of([&] { m.down->record(*m.came); }), HasSubstr("second stream"));
}

TEST(EmulatedRuntime, MemoryOfTheDeviceEnds) {
  const auto runtime = make_runtime({.memory = kMiB});
  const Allocation most = runtime->allocate(Tier::device, kMiB - 64, "most");
  EXPECT_THROW((void)runtime->allocate(Tier::device, 128, "more"), BudgetError);
  EXPECT_EQ(runtime->memory_info().free, 64);
}

}  // namespace
}  // namespace spillway::simt
