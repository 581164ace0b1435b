// The record protocol alone on a disk that loses power or fails: the last step that was reported as durable must be there, whole.
#include <gtest/gtest.h>

#include <random>

#include "nvme/commit_log.h"
#include "nvme/content_hash.h"
#include "tests/nvme/simulated_disk.h"
#include "tests/nvme/store_fixture.h"

namespace spillway {
namespace {

constexpr int kArrays = 3;
constexpr Bytes kArrayBytes = 96 * kKiB, kExtentBytes = 32 * kKiB, kRecordsBegin = 2 * kArrays * kArrayBytes,
                kPlaceBytes = 8 * kKiB;
constexpr std::int64_t kSteps = 4;

class PowerLoss : public StoreFixture {
 protected:
  PowerLoss() : StoreFixture(simulated_place()), memory_(kArrays * kArrayBytes) {}

  StoreOptions durable(StoreContent content) {
    StoreOptions given = options(2, kRecordsBegin + 2 * kPlaceBytes);
    given.log = nullptr;
    given.content = content;
    given.stripe_bytes = 16 * kKiB;
    given.block_bytes = 16 * kKiB;
    given.identity = StoreIdentity{.store_id = 3, .records_begin = kRecordsBegin, .place_bytes = kPlaceBytes};
    given.orphans = {3};
    return given;
  }
  std::vector<std::string> files() { return {directory("d0") + "/spillway-store.bin", directory("d1") + "/spillway-store.bin"}; }

  static CommitRecord record_of(std::int64_t step) {
    CommitRecord record{.store_id = 3,
                        .sequence = static_cast<std::uint64_t>(step),
                        .step = step,
                        .seed = 0,
                        .model = 0,
                        .form = 0,
                        .arrays = {},
                        .hashes = {}};
    for (int i = 0; i < kArrays; ++i) {
      const Bytes begin = 2 * i * kArrayBytes;
      record.arrays.push_back({.name = fmt::format("array {}", i),
                               .bytes = kArrayBytes,
                               .begin = {begin, begin + kArrayBytes},
                               .slot = static_cast<int>(step % 2),
                               .extent_bytes = kExtentBytes});
    }
    return record;
  }

  // Writes and commits steps until something fails. Returns the last step that was reported as durable.
  std::int64_t run(SimulatedDisk& disk) {
    StoreOptions given = durable(StoreContent::fresh);
    disk.attach(given);
    Store store(given);
    store.keep();
    std::int64_t durable_step = 0;
    try {
      CommitLog log(store, identity());
      StoreChannel channel = store.open_channel({.registered = {}});
      for (std::int64_t step = 1; step <= kSteps; ++step) {
        CommitRecord record = record_of(step);
        for (int i = 0; i < kArrays; ++i) {
          const IoSegment segment{record.arrays[static_cast<std::size_t>(i)].begin[static_cast<std::size_t>(step % 2)],
                                  memory_.data() + i * kArrayBytes, kArrayBytes};
          fill(segment, static_cast<std::uint64_t>(step));
          channel.write({&segment, 1});
          for (Bytes at = 0; at < kArrayBytes; at += kExtentBytes)
            record.hashes.push_back(extent_hash({segment.memory + at, static_cast<std::size_t>(kExtentBytes)}));
        }
        log.commit(record);
        durable_step = step;
      }
    } catch (const IoError&) {
    }
    return durable_step;
  }

  static StoreIdentity identity() {
    return {.store_id = 3,
            .directories = 2,
            .bytes = kRecordsBegin + 2 * kPlaceBytes,
            .stripe_bytes = 16 * kKiB,
            .records_begin = kRecordsBegin,
            .place_bytes = kPlaceBytes};
  }

  // Returns the step that a resuming run finds, after checking that every extent that the record names is that step's.
  std::int64_t recover() {
    const std::vector<std::string> directories = {directory("d0"), directory("d1")};
    EXPECT_EQ(identify_store(directories), identity());
    StoreOptions given = durable(StoreContent::existing);
    given.direct = DirectIo::off;
    Store store(given);
    CommitLog log(store, identity());
    const std::optional<CommitRecord> record = log.newest();
    if (!record) return 0;
    std::size_t hash = 0;
    for (const DurableArray& array : record->arrays) {
      const IoSegment segment{array.begin[static_cast<std::size_t>(array.slot)], memory_.data(), array.bytes};
      log.read({&segment, 1});
      EXPECT_EQ(first_wrong(segment, static_cast<std::uint64_t>(record->step)), -1) << array.name << " of step " << record->step;
      for (Bytes at = 0; at < array.bytes; at += array.extent_bytes) {
        EXPECT_EQ(extent_hash({segment.memory + at, static_cast<std::size_t>(array.extent_bytes)}), record->hashes[hash++]);
      }
    }
    return record->step;
  }

  long events_of_a_whole_run() {
    SimulatedDisk disk(files());
    EXPECT_EQ(run(disk), kSteps);
    EXPECT_EQ(recover(), kSteps);
    return disk.events();
  }

  void lose_power(std::uint64_t first, std::uint64_t seeds) {
    const long events = events_of_a_whole_run();
    int between = 0;
    for (std::uint64_t seed = first; seed < first + seeds; ++seed) {
      SimulatedDisk disk(files());
      disk.cut_power_at(static_cast<long>(std::mt19937_64(seed)() % static_cast<std::uint64_t>(events)));
      const std::int64_t durable_step = run(disk);
      disk.lose_power(seed);
      const std::int64_t recovered = recover();
      ASSERT_GE(recovered, durable_step) << "seed " << seed;
      ASSERT_LE(recovered, durable_step + 1) << "seed " << seed;
      between += recovered > durable_step;
      ASSERT_FALSE(HasFailure()) << "seed " << seed;
    }
    // Some records were whole on the disk before they were reported.
    EXPECT_GT(between, 0);
  }

  Buffer memory_;
};

TEST_F(PowerLoss, the_last_durable_step_is_there) { lose_power(1, 200); }

TEST_F(PowerLoss, SlowManySeeds) { lose_power(1000, 10'000); }

TEST_F(PowerLoss, each_request_failing_in_turn_leaves_the_last_durable_step) {
  const long events = events_of_a_whole_run();
  for (const int error : {EIO, ENOSPC}) {
    for (long at = 0; at < events; ++at) {
      SimulatedDisk disk(files());
      disk.fail_at(at, error);
      const std::int64_t durable_step = run(disk);
      ASSERT_LT(durable_step, kSteps) << "request " << at;
      const std::int64_t recovered = recover();
      ASSERT_GE(recovered, durable_step) << "request " << at;
      ASSERT_FALSE(HasFailure()) << "request " << at;
    }
  }
}

// Tests the test: it must find out a protocol without its syncs.
TEST_F(PowerLoss, a_disk_that_ignores_syncs_is_noticed) {
  const long events = events_of_a_whole_run();
  int lost = 0;
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    SimulatedDisk disk(files());
    disk.cut_power_at(static_cast<long>(std::mt19937_64(seed)() % static_cast<std::uint64_t>(events)));
    disk.ignore_syncs();
    const std::int64_t durable_step = run(disk);
    disk.lose_power(seed);
    StoreOptions given = durable(StoreContent::existing);
    given.direct = DirectIo::off;
    Store store(given);
    CommitLog log(store, identity());
    try {
      const std::optional<CommitRecord> record = log.newest();
      if (!record) {
        lost += durable_step > 0;
        continue;
      }
      lost += record->step < durable_step;
      const DurableArray& array = record->arrays[0];
      const IoSegment segment{array.begin[static_cast<std::size_t>(array.slot)], memory_.data(), array.bytes};
      log.read({&segment, 1});
      lost += first_wrong(segment, static_cast<std::uint64_t>(record->step)) >= 0;
    } catch (const IoError&) {
      ++lost;
    }
  }
  EXPECT_GT(lost, 10);
}

}  // namespace
}  // namespace spillway
