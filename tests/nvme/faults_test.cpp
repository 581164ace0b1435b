// The store's behaviour when the device misbehaves.
#include <gtest/gtest.h>

#include <cerrno>

#include "nvme/store.h"
#include "tests/nvme/faulty_queue.h"
#include "tests/nvme/store_fixture.h"

namespace spillway {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr Bytes kStoreBytes = 4 * kMiB;

class StoreFaults : public StoreFixture, public ::testing::WithParamInterface<IoQueueKind> {
 protected:
  StoreFaults() : memory_(kStoreBytes), all_{0, memory_.data(), kStoreBytes} { fill(all_); }

  Store faulty_store(FaultPlan plan, std::chrono::milliseconds timeout = std::chrono::seconds(60)) {
    StoreOptions given = options(2, kStoreBytes);
    given.queue = GetParam();
    given.stripe_bytes = 256 * kKiB;
    given.block_bytes = 64 * kKiB;
    given.depth = 6;
    given.timeout = timeout;
    given.decorate = [plan](std::unique_ptr<IoQueue> inner) { return std::make_unique<FaultyQueue>(std::move(inner), plan); };
    return Store(given);
  }
  void expect_round_trip(Store& store) {
    StoreChannel channel = store.open_channel({.registered = {}});
    channel.write({&all_, 1});
    std::fill_n(memory_.data(), memory_.bytes(), std::byte{0});
    channel.read({&all_, 1});
    EXPECT_EQ(first_wrong(all_), -1);
  }

  Buffer memory_;
  IoSegment all_;
};

TEST_P(StoreFaults, short_results_are_completed) {
  for (const Bytes most : {4096, 4096 + 512, 10000, 65535}) {
    FaultPlan plan;
    plan.fault = [most](const IoRequest&, int count) {
      return count % 3 == 0 ? Fault{Fault::Kind::short_result, most} : Fault{};
    };
    Store store = faulty_store(plan);
    expect_round_trip(store);
  }
}

TEST_P(StoreFaults, results_without_progress_are_tried_again_and_in_the_end_reported) {
  FaultPlan now_and_then;
  now_and_then.fault = [](const IoRequest&, int count) {
    return count % 4 == 1 ? Fault{Fault::Kind::short_result, count % 8 == 1 ? 0 : 512} : Fault{};
  };
  {
    Store store = faulty_store(now_and_then);
    expect_round_trip(store);
  }
  FaultPlan always;
  always.fault = [](const IoRequest& request, int) {
    return request.offset == 512 * kKiB && request.file == 1 ? Fault{Fault::Kind::short_result, 0} : Fault{};
  };
  Store store = faulty_store(always);
  StoreChannel channel = store.open_channel({.registered = {}});
  EXPECT_THAT(message_of<IoError>([&] { channel.read({&all_, 1}); }),
              AllOf(HasSubstr("read of 65536 bytes at offset 524288"), HasSubstr("the file ends there")));
}

TEST_P(StoreFaults, interruptions_are_tried_again) {
  FaultPlan plan;
  plan.fault = [](const IoRequest&, int count) {
    return count % 5 < 2 ? Fault{Fault::Kind::error, count % 5 == 0 ? EINTR : EAGAIN} : Fault{};
  };
  Store store = faulty_store(plan);
  expect_round_trip(store);
}

TEST_P(StoreFaults, reordered_and_delayed_completions_change_nothing) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    FaultPlan plan;
    plan.reorder = true;
    plan.seed = seed;
    plan.fault = [](const IoRequest&, int count) { return count % 7 == 0 ? Fault{Fault::Kind::short_result, 8192} : Fault{}; };
    Store store = faulty_store(plan);
    expect_round_trip(store);
  }
}

TEST_P(StoreFaults, errors_name_the_file_and_the_bytes_and_end_the_channel) {
  FaultPlan plan;
  plan.fault = [](const IoRequest& request, int) {
    return request.offset == 256 * kKiB && request.file == 0
               ? Fault{Fault::Kind::error, request.direction == IoDirection::read ? EIO : ENOSPC}
               : Fault{};
  };
  Store store = faulty_store(plan);
  StoreChannel writer = store.open_channel({.registered = {}});
  StoreChannel reader = store.open_channel({.registered = {}});
  const std::string written = message_of<IoError>([&] { writer.write({&all_, 1}); });
  EXPECT_THAT(written, AllOf(HasSubstr("write of 65536 bytes at offset 262144 of"), HasSubstr("d0/spillway-store.bin"),
                             HasSubstr("No space left on device")));
  const std::string read = message_of<IoError>([&] { reader.read({&all_, 1}); });
  EXPECT_THAT(read, AllOf(HasSubstr("read of 65536 bytes"), HasSubstr("Input/output error (errno 5)")));
  const IoSegment elsewhere{0, memory_.data(), kExtentAlignment};
  EXPECT_EQ(message_of<IoError>([&] { reader.read({&elsewhere, 1}); }), read);
}

// A queue that answers what nobody asked, as one with a mistake of ours would: never taken for data.
TEST_P(StoreFaults, answers_to_nothing_that_was_asked_are_noticed) {
  const auto told = [&](Fault fault) {
    FaultPlan plan;
    plan.fault = [fault](const IoRequest&, int count) { return count == 40 ? fault : Fault{}; };
    Store store = faulty_store(plan);
    StoreChannel channel = store.open_channel({.registered = {}});
    return message_of<Error>([&] { channel.read({&all_, 1}); });
  };
  EXPECT_THAT(told({Fault::Kind::stray, 0}), AllOf(HasSubstr("the drive answers request"), HasSubstr("not in flight")));
  EXPECT_THAT(told({Fault::Kind::error, -65540}), HasSubstr("the drive moved 65540 bytes of a read of 65536"));
}

TEST_P(StoreFaults, a_hung_request_is_named_after_the_timeout) {
  FaultPlan plan;
  plan.fault = [](const IoRequest&, int count) { return count == 9 ? Fault{Fault::Kind::lost, 0} : Fault{}; };
  Store store = faulty_store(plan, std::chrono::milliseconds(60));
  StoreChannel channel = store.open_channel({.registered = {}});
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THAT(message_of<IoError>([&] { channel.write({&all_, 1}); }),
              AllOf(HasSubstr("write of 65536 bytes at offset"), HasSubstr("no answer for 60 ms")));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
}

TEST_P(StoreFaults, syncs_that_fail_or_hang_are_named) {
  const auto told = [&](Fault::Kind kind, std::chrono::milliseconds timeout) {
    FaultPlan plan;
    plan.fault = [kind](const IoRequest& request, int) {
      return request.direction == IoDirection::sync && request.file == 1 ? Fault{kind, EIO} : Fault{};
    };
    Store store = faulty_store(plan, timeout);
    StoreChannel channel = store.open_channel({.registered = {}});
    channel.write({&all_, 1});
    return message_of<IoError>([&] { channel.sync(); });
  };
  EXPECT_THAT(told(Fault::Kind::error, std::chrono::seconds(60)),
              AllOf(HasSubstr("sync of "), HasSubstr("d1/spillway-store.bin failed: Input/output error (errno 5)")));
  EXPECT_THAT(told(Fault::Kind::lost, std::chrono::seconds(1)),
              AllOf(HasSubstr("sync of "), HasSubstr("d1/spillway-store.bin failed: no answer for 1000 ms")));
  FaultPlan interrupted;
  interrupted.fault = [](const IoRequest& request, int count) {
    return request.direction == IoDirection::sync && count % 3 != 0 ? Fault{Fault::Kind::error, EINTR} : Fault{};
  };
  Store store = faulty_store(interrupted);
  StoreChannel channel = store.open_channel({.registered = {}});
  channel.write({&all_, 1});
  EXPECT_NO_THROW(channel.sync());
}

INSTANTIATE_TEST_SUITE_P(Queues, StoreFaults, ::testing::Values(IoQueueKind::io_uring, IoQueueKind::threads),
                         [](const auto& queue) { return std::string(name_of(queue.param)); });

}  // namespace
}  // namespace spillway
