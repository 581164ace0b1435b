// The guard catches a kernel or transfer that touches bytes which no running operation has, and leaves one alone that keeps to
// its buffers.
#include "offload/buffer_guard.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/offload/late_writes.h"
#include "tests/offload/small_training.h"

#if defined(SPILLWAY_POISONS) || !defined(NDEBUG)  // elsewhere there is nothing to test

namespace spillway {
namespace {

// One resident page, one resident buffer without bytes, then a buffer of two pages that operations 0 and 2 use whole and
// operation 1 in its second page, beside a buffer of operation 1 alone.
Plan two_buffers() {
  constexpr Bytes page = kExtentAlignment;
  Plan plan;
  plan.resident.push_back({.name = {"resident"}, .bytes = page, .offset = 0, .resident = true});
  plan.resident.push_back({.name = {"empty"}, .bytes = 0, .offset = 0, .resident = true});
  plan.step.buffers.push_back({.name = {"long"}, .bytes = 2 * page, .offset = page, .first_op = 0, .last_op = 2});
  plan.step.buffers.push_back({.name = {"short"}, .bytes = page, .offset = 4 * page, .first_op = 1, .last_op = 1});
  plan.step.ops.resize(3);
  plan.step.ops[0].operands = {{.access = Access::write, .buffer = 2, .begin = 0, .bytes = 2 * page}};
  plan.step.ops[1].operands = {{.buffer = 2, .begin = page, .bytes = page}, {.access = Access::write, .buffer = 3, .bytes = 100}};
  plan.step.ops[2].operands = {{.buffer = 2, .begin = 0, .bytes = 2 * page}, {.buffer = 0, .bytes = page}};
  plan.peak[Tier::device] = 5 * page;
  return plan;
}

std::span<std::byte> span_of(const Arena& arena) { return {arena.data(), static_cast<std::size_t>(arena.bytes())}; }

class BufferGuardTest : public ::testing::Test {
 protected:
  static constexpr Bytes kPage = kExtentAlignment;
  BufferGuardTest() { BufferGuard::release_all(plan_, span_of(device_)); }
#ifdef SPILLWAY_POISONS
  bool touchable(Bytes at) const { return __asan_address_is_poisoned(device_.data() + at) == 0; }
  // [5 pages of the arena] true: the page's first byte may be touched.
  std::vector<bool> touchable_pages() const {
    std::vector<bool> pages;
    for (Bytes page = 0; page < 5; ++page) pages.push_back(touchable(page * kPage));
    return pages;
  }
  using Pages = std::vector<bool>;
#endif

  const Plan plan_ = two_buffers();
  const Arena device_{5 * kPage, "device"};
  BufferGuard guard_{plan_.step, plan_, span_of(device_)};
};

#ifdef SPILLWAY_POISONS
TEST_F(BufferGuardTest, BytesAreTouchableFromTheirFirstOperationToTheirLast) {
  for (int step = 0; step < 2; ++step) {
    EXPECT_EQ(touchable_pages(), (Pages{true, false, false, false, false}));
    guard_.begin(0);
    EXPECT_EQ(touchable_pages(), (Pages{true, true, true, false, false}));
    guard_.end(0);
    guard_.begin(1);
    EXPECT_EQ(touchable_pages(), (Pages{true, true, true, false, true}));
    EXPECT_TRUE(touchable(4 * kPage + 103));  // to the sanitizer's next granule
    EXPECT_FALSE(touchable(4 * kPage + 104));
    guard_.begin(2);
    guard_.end(1);  // the last to use the short buffer, while operation 2 has the long one
    EXPECT_EQ(touchable_pages(), (Pages{true, true, true, false, false}));
    guard_.end(2);
  }
}

TEST_F(BufferGuardTest, OperationsOfTwoLanesMayEndInEitherOrder) {
  guard_.begin(0);
  guard_.end(0);
  guard_.begin(1);
  guard_.begin(2);
  guard_.end(2);
  EXPECT_EQ(touchable_pages(), (Pages{true, false, true, false, true}));  // the page that operation 1 still has
  guard_.end(1);
  EXPECT_EQ(touchable_pages(), (Pages{true, false, false, false, false}));
}
#endif

#ifndef NDEBUG
TEST_F(BufferGuardTest, WhatIsResidentIsKept) {
  std::memset(device_.at(0), 0, kPage);
  BufferGuard::release_all(plan_, span_of(device_));
  float value = 1;
  std::memcpy(&value, device_.at(0), sizeof(value));
  EXPECT_EQ(value, 0);
}

TEST_F(BufferGuardTest, WhatIsReleasedIsNotANumber) {
  guard_.begin(0);
  std::memset(device_.at(kPage), 0, 2 * kPage);
  guard_.end(0);
  guard_.begin(1);
  guard_.end(1);
  float value = 1;
  std::memcpy(&value, device_.at(2 * kPage), sizeof(value));
  EXPECT_EQ(value, 0) << "operation 2 is still to come";
  guard_.begin(2);
  guard_.end(2);
  device_.unpoison(2 * kPage, kPage);
  std::memcpy(&value, device_.at(2 * kPage), sizeof(value));
  EXPECT_TRUE(std::isnan(value));
}
#endif

#ifdef SPILLWAY_POISONS

// --- Planted in a training --------------------------------------------------------------------------------------------------

bool in_use(const Plan& plan, int op, Bytes at) {
  const auto holds = [at](const Buffer& buffer) {
    return buffer.tier == Tier::device && at >= buffer.offset && at < buffer.offset + buffer.bytes * buffer.slots;
  };
  return std::any_of(plan.resident.begin(), plan.resident.end(), holds) ||
         std::any_of(plan.step.buffers.begin(), plan.step.buffers.end(),
                     [&](const Buffer& buffer) { return holds(buffer) && op >= buffer.first_op && op <= buffer.last_op; });
}

class BufferGuardDeathTest : public ::testing::Test {
 protected:
  BufferGuardDeathTest() {
    testing::FLAGS_gtest_death_test_style = "threadsafe";  // the executor has threads
    // One directory for this process and for the process that is to die, which could not remove one of its own.
    const auto place = std::hash<std::string>{}(std::filesystem::current_path().string());
    const char* test = ::testing::UnitTest::GetInstance()->current_test_info()->name();
    directory_ = fmt::format("{}{}_{:x}", ::testing::TempDir(), test, place);
    std::filesystem::create_directory(directory_);
  }
  ~BufferGuardDeathTest() override { std::filesystem::remove_all(directory_); }

  const std::string& directory() const { return directory_; }

 private:
  std::string directory_;
};

TEST_F(BufferGuardDeathTest, AKernelThatWritesBehindItsBufferIsCaught) {
  SmallModel model("llama_gqa", DType::bfloat16, 1, 16);
  const Plan plan = plan_of(model, uniform_choices(model, 0, StateForm::exact, 1, true, Tier::device));
  const auto train = [&] {
    SmallTraining small(model, plan, directory());
    small.load_weights();
    small.train(2);
  };
  train();  // must work without a planted error
  for (int id = 0; id < static_cast<int>(plan.step.ops.size()); ++id) {
    const Op& op = plan.step.ops[id];
    if (op.kind != OpKind::forward) continue;
    for (const Operand& operand : op.operands) {
      if (operand.role != Role::workspace || operand.buffer < 0) continue;
      const Buffer& workspace = buffer_of(plan, plan.step, operand.buffer);
      const Bytes behind = workspace.offset + workspace.bytes;
      if (behind >= plan.peak[Tier::device] || in_use(plan, id, behind)) continue;
      // Touches one float behind its workspace.
      const CallList& list = (*model.tiled.code[static_cast<std::size_t>(op.unit)])[Pass::forward];
      model.around = std::make_unique<TellingBackend>(model.backend, list, [&](const PassMemory& memory) {
        const float one = 1;
        std::memcpy(memory.workspace + workspace.bytes, &one, sizeof(one));
      });
      EXPECT_DEATH(train(), "use-after-poison");
      return;
    }
  }
  FAIL() << "no operation has free bytes behind its workspace";
}

TEST_F(BufferGuardDeathTest, ATransferOutsideBuffersInUseIsCaught) {
  const Arena device(4 * kExtentAlignment, "device");
  for (const IoQueueKind kind : {IoQueueKind::automatic, IoQueueKind::threads}) {
    const auto read = [&](Bytes released) {
      Store store({.directories = {{directory(), 0}}, .bytes = 4 * kExtentAlignment, .queue = kind});
      StoreChannel channel = store.open_channel({});
      const IoSegment segment{0, device.data(), 4 * kExtentAlignment};
      channel.write({&segment, 1});
      const IoTicket ticket = channel.start(IoDirection::read, {&segment, 1});
      device.poison(0, released);  // while the request is under way
      channel.wait(ticket);
    };
    read(0);
    EXPECT_DEATH(read(kExtentAlignment), "use-after-poison");
    device.poison(3 * kExtentAlignment, kExtentAlignment);
    EXPECT_DEATH(read(0), "use-after-poison");
    device.unpoison(0, 4 * kExtentAlignment);
  }
}

#endif

}  // namespace
}  // namespace spillway

#endif
