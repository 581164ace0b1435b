#include "nvme/store.h"

#include <random>
#include <thread>

#include "tests/nvme/store_fixture.h"

namespace spillway {
namespace {

using ::testing::HasSubstr;

class StoreQueues : public StoreFixture, public ::testing::WithParamInterface<IoQueueKind> {
 protected:
  StoreOptions options(int directories, Bytes bytes) {
    StoreOptions result = StoreFixture::options(directories, bytes);
    result.queue = GetParam();
    return result;
  }
};

// Segments that cover [0, bytes) of the store once, in random pieces and order, from random places of memory.
std::vector<IoSegment> random_cover(Bytes bytes, const Buffer& memory, std::mt19937_64& random) {
  std::vector<IoSegment> segments;
  const Bytes pages = bytes / kExtentAlignment;
  for (Bytes page = 0; page < pages;) {
    const Bytes longest = std::min<Bytes>(pages - page, random() % 4 == 0 ? 700 : 9);
    const Bytes count = 1 + static_cast<Bytes>(random() % static_cast<std::uint64_t>(longest));
    segments.push_back({page * kExtentAlignment, nullptr, count * kExtentAlignment});
    page += count;
  }
  std::shuffle(segments.begin(), segments.end(), random);
  Bytes at = 0;
  for (IoSegment& segment : segments) {
    segment.memory = memory.data() + at;
    at += segment.bytes;
  }
  return segments;
}

TEST_P(StoreQueues, reads_back_what_was_written_by_odd_segments) {
  for (const int directories : {1, 2, 3, 4}) {
    for (const bool registered : {false, true}) {
      StoreOptions given = options(directories, 13 * kMiB + 3 * kExtentAlignment);
      given.stripe_bytes = 64 * kKiB;
      given.block_bytes = 96 * kKiB;
      given.depth = 5;
      for (std::size_t i = 0; i < given.directories.size(); ++i)
        given.directories[i].cap_bytes = (14 - 4 * static_cast<Bytes>(i)) * kMiB;
      Store store(given);
      const Buffer out(store.bytes()), in(store.bytes());
      const std::vector<std::span<std::byte>> arenas{out.span(), in.span()};
      StoreChannelOptions channel_options{.registered = {}, .max_operations = 4, .max_segments = 2000};
      if (registered) channel_options.registered = arenas;
      StoreChannel writer = store.open_channel(channel_options);
      StoreChannel reader = store.open_channel(channel_options);
      EXPECT_EQ(writer.kind(), GetParam());
      std::mt19937_64 random(static_cast<std::uint64_t>(directories));
      for (std::uint64_t generation = 0; generation < 3; ++generation) {
        const auto written = random_cover(store.bytes(), out, random);
        for (const IoSegment& segment : written) fill(segment, generation);
        writer.write(written);
        const auto read = random_cover(store.bytes(), in, random);
        reader.read(read);
        for (const IoSegment& segment : read) ASSERT_EQ(first_wrong(segment, generation), -1) << segment.offset;
      }
      writer.sync();
      EXPECT_EQ(store.traffic().read_bytes, 3 * store.bytes());
      EXPECT_EQ(store.traffic().written_bytes, 3 * store.bytes());
    }
  }
  EXPECT_TRUE(messages_.empty()) << messages_.front();
}

TEST_P(StoreQueues, keeps_many_operations_in_flight_and_waits_in_any_order) {
  StoreOptions given = options(2, 8 * kMiB);
  given.stripe_bytes = 128 * kKiB;
  given.depth = 3;
  Store store(given);
  const Buffer memory(store.bytes());
  StoreChannel channel = store.open_channel({.registered = {}, .max_operations = 8, .max_segments = 5});
  const Bytes piece = kMiB / 4;
  std::vector<IoSegment> all;
  for (Bytes at = 0; at < store.bytes(); at += piece) all.push_back({at, memory.data() + at, piece});
  for (const IoSegment& segment : all) fill(segment);
  // Starts eight operations of four segments each, in a ring of five segments.
  const auto run = [&](IoDirection direction, const std::vector<int>& order) {
    std::vector<IoTicket> tickets;
    for (std::size_t i = 0; i < 8; ++i) tickets.push_back(channel.start(direction, std::span(all).subspan(i * 4, 4)));
    for (int i : order) channel.wait(tickets[static_cast<std::size_t>(i)]);
  };
  run(IoDirection::write, {7, 0, 3, 2, 1, 6, 5, 4});
  std::fill_n(memory.data(), memory.bytes(), std::byte{0});
  run(IoDirection::read, {0, 1, 7, 6, 2, 3, 5, 4});
  for (const IoSegment& segment : all) ASSERT_EQ(first_wrong(segment), -1) << segment.offset;

  // An empty operation is complete; poll() alone can bring an operation to its end.
  channel.wait(channel.start(IoDirection::read, {}));
  const IoTicket ticket = channel.start(IoDirection::read, std::span(all).first(4));
  while (!channel.poll(ticket)) std::this_thread::yield();
  channel.wait(ticket);
}

TEST_P(StoreQueues, a_write_and_a_read_channel_work_at_the_same_time) {
  Store store(options(2, 16 * kMiB));
  const Buffer memory(16 * kMiB);
  const Bytes half = 8 * kMiB;
  StoreChannel first = store.open_channel({.registered = {}});
  const IoSegment upper{half, memory.data() + half, half};
  fill(upper);
  first.write({&upper, 1});
  std::thread writer([&] {
    const IoSegment lower{0, memory.data(), half};
    for (std::uint64_t generation = 0; generation < 5; ++generation) {
      fill(lower, generation);
      first.write({&lower, 1});
    }
  });
  StoreChannel second = store.open_channel({.registered = {}});
  const Buffer back(half);
  const IoSegment upper_again{half, back.data(), half};
  for (int i = 0; i < 5; ++i) {
    second.read({&upper_again, 1});
    EXPECT_EQ(first_wrong(upper_again), -1);
  }
  writer.join();
  const IoSegment lower_again{0, back.data(), half};
  second.read({&lower_again, 1});
  EXPECT_EQ(first_wrong(lower_again, 4), -1);
}

TEST_P(StoreQueues, kept_files_are_found_again) {
  StoreOptions given = options(3, 5 * kMiB);
  given.stripe_bytes = 256 * kKiB;
  given.directories[1].cap_bytes = kMiB;
  const Buffer memory(given.bytes);
  const IoSegment all{0, memory.data(), given.bytes};
  {
    Store store(given);
    fill(all);
    store.open_channel({.registered = {}}).write({&all, 1});
    store.keep();
  }
  EXPECT_THAT(message_of<IoError>([&] { Store store(given); }), HasSubstr("was kept by an earlier run"));
  given.content = StoreContent::existing;
  std::fill_n(memory.data(), memory.bytes(), std::byte{0});
  {
    Store store(given);
    store.open_channel({.registered = {}}).read({&all, 1});
    EXPECT_EQ(first_wrong(all), -1);
  }
  given.bytes += kMiB;
  EXPECT_THAT(message_of<IoError>([&] { Store store(given); }), HasSubstr("do not hold 6291456 bytes"));
}

TEST_P(StoreQueues, buffered_where_direct_is_off) {
  StoreOptions given = options(1, kMiB);
  given.direct = DirectIo::off;
  Store store(given);
  const Buffer memory(kMiB);
  const IoSegment all{0, memory.data(), kMiB};
  StoreChannel channel = store.open_channel({.registered = {}});
  fill(all);
  channel.write({&all, 1});
  std::fill_n(memory.data(), memory.bytes(), std::byte{0});
  channel.read({&all, 1});
  EXPECT_EQ(first_wrong(all), -1);
}

INSTANTIATE_TEST_SUITE_P(Queues, StoreQueues, ::testing::Values(IoQueueKind::io_uring, IoQueueKind::threads),
                         [](const auto& queue) { return std::string(name_of(queue.param)); });

using StoreMisuse = StoreFixture;

TEST_F(StoreMisuse, what_is_not_aligned_is_our_bug) {
  Store store(options(1, kMiB));
  StoreChannel channel = store.open_channel({.registered = {}, .max_operations = 2, .max_segments = 2});
  const Buffer memory(kMiB);
  const auto read = [&](const IoSegment& segment) { channel.read({&segment, 1}); };
  EXPECT_ANY_THROW(read({512, memory.data(), 4096}));
  EXPECT_ANY_THROW(read({0, memory.data() + 8, 4096}));
  EXPECT_ANY_THROW(read({0, memory.data(), 100}));
  EXPECT_ANY_THROW(read({kMiB - 4096, memory.data(), 8192}));
  EXPECT_ANY_THROW(read({-4096, memory.data(), 4096}));
  EXPECT_ANY_THROW(channel.wait(static_cast<IoTicket>(77)));
  EXPECT_NO_THROW(read({0, memory.data(), 4096}));
}

}  // namespace
}  // namespace spillway
