// The arena must be aligned, zeroed, no larger than it says, and give everything back.
#include "memory/runtime/arena.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <utility>

#include "memory/base/error.h"
#include "tests/memory/process_bytes.h"

namespace spillway {
namespace {

TEST(Arena, IsAlignedZeroedAndWritable) {
  const Bytes bytes = 5 * kMiB + 12345;
  const Arena arena(bytes, "device");
  EXPECT_EQ(arena.bytes(), bytes);
  EXPECT_EQ(arena.name(), "device");
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(arena.data()) % (2 * kMiB), 0u);
  for (const Bytes at : {Bytes{0}, 2 * kMiB, bytes - 1}) {
    EXPECT_EQ(*arena.at(at), std::byte{0});
    *arena.at(at) = std::byte{7};
  }
  EXPECT_EQ(arena.at(bytes), arena.data() + bytes);
}

TEST(Arena, PrefaultBacksItsSizeAndKeepsWhatIsThere) {
  const ThreadPool pool(2);
  pool.parallel_for(8, [](std::int64_t, int) {});  // its threads' own memory comes first
  const Bytes bytes = 65 * kMiB + 4096;            // on 66 MiB of huge pages; the system counts to a few pages
  const Bytes before = process_bytes("VmRSS:");
  {
    const Arena arena(bytes, "device");
    *arena.at(40 * kMiB) = std::byte{9};
    arena.prefault(pool);
    EXPECT_EQ(*arena.at(40 * kMiB), std::byte{9});
    if (kCountsResidentBytes) {
      const Bytes backed = process_bytes("VmRSS:") - before;
      EXPECT_GE(backed, bytes - kMiB);
      EXPECT_LE(backed, bytes + 2 * kMiB);
    }
  }
  if (kCountsResidentBytes) {
    EXPECT_LE(process_bytes("VmRSS:"), before + kMiB);
  }
}

TEST(Arena, TakesWholeHugePagesAndNoMore) {
  if (!kCountsResidentBytes) GTEST_SKIP() << "a sanitizer's own memory is counted, too";
  process_bytes("VmSize:");  // the first call may take memory itself
  const Bytes before = process_bytes("VmSize:");
  const Arena arena(100 * kMiB + 4096, "device");
  EXPECT_EQ(process_bytes("VmSize:") - before, 102 * kMiB);
  const Arena small(12 * kKiB, "small");
  EXPECT_EQ(process_bytes("VmSize:") - before, 102 * kMiB + 12 * kKiB);
}

TEST(Arena, MovesAndEmptyOnes) {
  Arena first(kMiB, "first");
  std::byte* const data = first.data();
  Arena second(std::move(first));
  EXPECT_EQ(second.data(), data);
  Arena third(2 * kMiB, "third");
  third = std::move(second);
  EXPECT_EQ(third.data(), data);
  EXPECT_EQ(third.bytes(), kMiB);
  EXPECT_EQ(third.name(), "first");
  const Arena none(0, "none");
  EXPECT_EQ(none.data(), nullptr);
  none.prefault(ThreadPool(1));
}

TEST(Arena, TooMuchIsABudgetErrorThatNamesIt) {
  try {
    const Arena arena(Bytes{1} << 62, "host staging");
    FAIL() << "4 EiB were reserved";
  } catch (const BudgetError& error) {
    EXPECT_THAT(error.what(), testing::AllOf(testing::HasSubstr("host staging"), testing::HasSubstr("4611686018427387904")));
    EXPECT_THAT(error.help(), testing::HasSubstr("--host-memory"));
  }
}

TEST(ArenaDeathTest, RangesOutsideAreOurBug) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const Arena arena(kMiB, "device");
  EXPECT_ANY_THROW(arena.at(kMiB + 1));
  EXPECT_ANY_THROW(arena.unpoison(kMiB - 1, 2));
  EXPECT_ANY_THROW(arena.poison(-1, 1));
#if defined(__SANITIZE_ADDRESS__)
  arena.poison(4096, 4096);
  EXPECT_DEATH(*static_cast<volatile std::byte*>(arena.at(5000)) = std::byte{1}, "use-after-poison");
  arena.unpoison(4096, 4096);
  *arena.at(5000) = std::byte{1};
#endif
}

}  // namespace
}  // namespace spillway
