// Tests that the emulation catches what it is for: each of these kernels is wrong in one way, and right without it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "memory/base/bfloat16.h"
#include "tests/simt/gpu.h"

namespace spillway::simt {
namespace {

using testing::HasSubstr;

// A kernel with a body that a test gives it.
struct Anything {
  static constexpr int kThreads = 64;
  const std::function<void(const Gpu&)>* body;
  void operator()(const Gpu& gpu) const { (*body)(gpu); }
};

Counts run(const std::function<void(const Gpu&)>& body, std::int64_t shared_bytes = 1024, Options options = {.counts = true},
           std::int64_t blocks = 1) {
  Queue queue(options);
  launch(queue, {.blocks = blocks, .shared_bytes = shared_bytes}, Anything{&body});
  return queue.counts();
}

std::string error_of(const std::function<void(const Gpu&)>& body) {
  try {
    run(body);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// Every thread hands its number to the next one.
void hand_on(const Gpu& gpu, bool with_barrier) {
  const auto words = gpu.shared<int>();
  gpu.store(words + gpu.thread(), gpu.thread());
  if (with_barrier) gpu.sync();
  const int got = gpu.load(words + (gpu.thread() + 1) % 64);
  EXPECT_EQ(got, (gpu.thread() + 1) % 64);
}

TEST(Planted, ABarrierThatIsMissing) {
  EXPECT_EQ(error_of([](const Gpu& gpu) { hand_on(gpu, true); }), "");
  // The order of the warps decides in which of the two ways it goes wrong.
  EXPECT_THAT(error_of([](const Gpu& gpu) { hand_on(gpu, false); }),
              testing::AnyOf(HasSubstr("without a barrier between"), HasSubstr("before it is written")));
}

TEST(Planted, ABarrierThatNotAllReach) {
  EXPECT_THAT(error_of([](const Gpu& gpu) {
                if (gpu.thread() != 7) gpu.sync();
              }),
              HasSubstr("which thread 7 does not reach: it has ended"));
  // A macro's argument is all on one line: this one is not.
  const auto apart = [](const Gpu& gpu) {
    if (gpu.warp() == 0) {
      gpu.sync();
    } else {
      gpu.sync();
    }
  };
  EXPECT_THAT(error_of(apart), HasSubstr("does not reach: it waits at"));
}

TEST(Planted, AShuffleWithLanesGone) {
  const auto sum = [](const Gpu& gpu, int gone) {
    if (gpu.lane() == gone) return;
    EXPECT_EQ(gpu.shuffle_xor(gpu.lane(), 1), gpu.lane() ^ 1);
  };
  EXPECT_EQ(error_of([&](const Gpu& gpu) { sum(gpu, -1); }), "");
  EXPECT_THAT(error_of([&](const Gpu& gpu) { sum(gpu, 31); }), HasSubstr("of its warp has ended"));
}

TEST(Planted, LanesThatMeetFromDifferentPlaces) {
  const auto apart = [](const Gpu& gpu) {
    if (gpu.lane() < 16) {
      gpu.sync_warp();
    } else {
      gpu.sync_warp();
    }
  };
  EXPECT_THAT(error_of(apart), HasSubstr("of its warp at sync_warp"));
  EXPECT_THAT(error_of([](const Gpu& gpu) {
                if (gpu.lane() == 0) gpu.sync();
                gpu.shuffle_xor(1, 1);
              }),
              HasSubstr("is at a barrier"));
}

TEST(Planted, ARaceInSharedMemory) {
  // Two threads write the same word.
  EXPECT_THAT(error_of([](const Gpu& gpu) { gpu.store(gpu.shared<int>() + gpu.thread() / 2, 1); }), HasSubstr("race"));
  // A word is written over while others may still read it.
  const auto reuse = [](const Gpu& gpu, bool with_barrier) {
    const auto word = gpu.shared<int>();
    if (gpu.thread() == 0) gpu.store(word, 1);
    gpu.sync();
    EXPECT_EQ(gpu.load(word), 1);
    if (with_barrier) gpu.sync();
    if (gpu.thread() == 63) gpu.store(word, 2);
  };
  EXPECT_EQ(error_of([&](const Gpu& gpu) { reuse(gpu, true); }), "");
  EXPECT_THAT(error_of([&](const Gpu& gpu) { reuse(gpu, false); }), HasSubstr("race"));
  // Within a warp a barrier of the warp is enough, and between warps it is not.
  const auto within = [](const Gpu& gpu, int distance) {
    const auto words = gpu.shared<int>();
    gpu.store(words + gpu.thread(), gpu.thread());
    gpu.sync_warp();
    gpu.load(words + (gpu.thread() ^ distance));
  };
  EXPECT_EQ(error_of([&](const Gpu& gpu) { within(gpu, 1); }), "");
  EXPECT_THAT(error_of([&](const Gpu& gpu) { within(gpu, 32); }), testing::AnyOf(HasSubstr("race"), HasSubstr("before it is")));
}

TEST(Planted, ARaceThatOnlyAnOrderOfWarpsShows) {
  // Warp 0 reads what warp 1 writes. Only the order decides whether it reads before or after; both are caught.
  for (std::uint64_t seed = 1; seed < 20; ++seed) {
    const std::function<void(const Gpu&)> body = [](const Gpu& gpu) {
      const auto word = gpu.shared<int>();
      if (gpu.thread() == 0) gpu.store(word, 1);
      gpu.sync();
      if (gpu.warp() == 0) {
        gpu.load(word);
      } else if (gpu.lane() == 0) {
        gpu.store(word, 2);
      }
    };
    EXPECT_THROW(run(body, 64, {.seed = seed}), Error);
  }
}

struct alignas(16) Sixteen {
  float x[4];
};

TEST(Planted, ACopyThatIsNotWaitedFor) {
  const std::vector<float> numbers(256, 3.0f);
  const Buffer<float> from{std::span<const float>(numbers)};
  const auto copy = [&](const Gpu& gpu, bool waits, bool syncs, bool ends_waiting = true) {
    const auto to = gpu.shared<float>();
    gpu.copy_16(to + 4 * gpu.thread(), from.data() + 4 * gpu.thread());
    gpu.commit_copies();
    if (waits) gpu.wait_for_copies<0>();
    if (syncs) gpu.sync();
    EXPECT_EQ(gpu.load(to + (255 - gpu.thread())), 3.0f);
    if (ends_waiting) gpu.wait_for_copies<0>();
  };
  EXPECT_EQ(error_of([&](const Gpu& gpu) { copy(gpu, true, true); }), "");
  EXPECT_THAT(error_of([&](const Gpu& gpu) { copy(gpu, false, true); }), HasSubstr("was not waited for"));
  EXPECT_NE(error_of([&](const Gpu& gpu) { copy(gpu, true, false); }), "");
  EXPECT_THAT(error_of([&](const Gpu& gpu) {
                gpu.copy_16(gpu.shared<float>() + 4 * gpu.thread(), from.data() + 4 * gpu.thread());
                gpu.commit_copies();
              }),
              HasSubstr("ends with copies"));
}

TEST(Planted, WaitingForOlderGroupsLeavesTheNewer) {
  std::vector<float> numbers(8);
  std::iota(numbers.begin(), numbers.end(), 0.0f);
  const Buffer<float> from{std::span<const float>(numbers)};
  const auto copy = [&](const Gpu& gpu, int read) {
    if (gpu.thread() != 0) return;
    const auto to = gpu.shared<float>();
    for (int group = 0; group < 2; ++group) {
      gpu.copy_16(to + 4 * group, from.data() + 4 * group);
      gpu.commit_copies();
    }
    gpu.wait_for_copies<1>();
    EXPECT_EQ(gpu.load(to + read), static_cast<float>(read));
    gpu.wait_for_copies<0>();
  };
  EXPECT_EQ(error_of([&](const Gpu& gpu) { copy(gpu, 3); }), "");
  EXPECT_THAT(error_of([&](const Gpu& gpu) { copy(gpu, 4); }), HasSubstr("was not waited for"));
}

TEST(Planted, ACopyOfNothingGivesZeros) {
  const Buffer<float> from(4);
  EXPECT_EQ(error_of([&](const Gpu& gpu) {
              if (gpu.thread() != 0) return;
              gpu.copy_16(gpu.shared<float>(), from.data() + 400, false);
              gpu.commit_copies();
              gpu.wait_for_copies<0>();
              EXPECT_EQ(gpu.load(gpu.shared<float>() + 3), 0.0f);
            }),
            "");
}

TEST(Planted, SharedMemoryReadBeforeItIsWritten) {
  EXPECT_THAT(error_of([](const Gpu& gpu) { gpu.load(gpu.shared<float>() + gpu.thread()); }), HasSubstr("before it is written"));
}

TEST(Planted, AMisalignedVector) {
  const Buffer<float> numbers(64);
  EXPECT_THAT(error_of([&](const Gpu& gpu) { gpu.load(reinterpret_cast<const Sixteen*>(numbers.data() + 1)); }),
              HasSubstr("not aligned"));
  EXPECT_THAT(error_of([&](const Gpu& gpu) { gpu.load((gpu.shared<float>() + 2).as<Sixteen>()); }), HasSubstr("not aligned"));
}

TEST(Planted, AnIndexOutOfAnAllocation) {
  const Buffer<float> numbers(64), beside(64);
  for (const int by : {0, -1, 1}) {
    const std::string error = error_of([&](const Gpu& gpu) { gpu.store(numbers.data() + gpu.thread() + by, 1.0f); });
    EXPECT_EQ(error.find("in no allocation") != std::string::npos, by != 0) << error;
  }
  EXPECT_THAT(error_of([](const Gpu& gpu) { gpu.store(gpu.shared<float>() + 256 + gpu.thread(), 1.0f); }),
              HasSubstr("of 1024 of shared memory"));
}

// A tile of 16-bit numbers in rows of 64, written by rows and read as matrices. If it swizzles, the row turns the column of its
// eighths.
std::int64_t conflicts_of(bool swizzles) {
  const auto place = [&](int row, int eighth) { return row * 64 + (swizzles ? eighth ^ (row % 8) : eighth) * 8; };
  struct alignas(16) Eight {
    std::uint16_t x[8];
  };
  return run(
             [&](const Gpu& gpu) {
               const auto tile = gpu.shared<std::uint16_t>();
               for (int i = gpu.thread(); i < 32 * 8; i += 64) gpu.store((tile + place(i / 8, i % 8)).as<Eight>(), Eight{});
               gpu.sync();
               std::uint32_t registers[4];
               gpu.load_matrices(registers, tile + place(gpu.lane() % 16, gpu.lane() / 16));
             },
             32 * 64 * 2)
      .bank_conflicts;
}
TEST(Planted, AWrongSwizzle) {
  EXPECT_EQ(conflicts_of(true), 0);
  EXPECT_EQ(conflicts_of(false), 2 * 4 * 7);
}

// The same tile, filled by copies: eight lanes write the eight chunks of a row, or the chunks of one number in eight rows.
std::int64_t conflicts_of_copies(bool swizzles, bool by_rows) {
  const Buffer<std::uint16_t> from(64 * 64);
  const auto place = [&](int row, int eighth) { return row * 64 + (swizzles ? eighth ^ (row % 8) : eighth) * 8; };
  return run(
             [&](const Gpu& gpu) {
               const auto tile = gpu.shared<std::uint16_t>();
               for (int i = gpu.thread(); i < 64 * 8; i += 64) {
                 const int row = by_rows ? i / 8 : i % 64, eighth = by_rows ? i % 8 : i / 64;
                 // Rows that are not there are zeros: they are written as the others are.
                 gpu.copy_16(tile + place(row, eighth), from.data() + row * 64 + eighth * 8, row < 50);
               }
               gpu.commit_copies();
               gpu.wait_for_copies<0>();
             },
             64 * 64 * 2)
      .bank_conflicts;
}
TEST(Planted, AWrongSwizzleOfCopies) {
  EXPECT_EQ(conflicts_of_copies(true, true), 0);
  EXPECT_EQ(conflicts_of_copies(true, false), 0);
  EXPECT_EQ(conflicts_of_copies(false, true), 0);
  EXPECT_EQ(conflicts_of_copies(false, false), 64 * 7);  // seven in each quarter of a warp
}

// Accesses of sixteen bytes per lane go by quarters of a warp, of eight by halves. Lanes that ask for nothing do not bring others
// together.
struct alignas(8) TwoWords {
  float x[2];
};
template <typename T>
std::int64_t conflicts_of_lanes(int every, int stride) {
  return run(
             [&](const Gpu& gpu) {
               if (gpu.warp() == 0 && gpu.lane() % every == 0) gpu.store(gpu.shared<T>() + gpu.lane() * stride, T{});
             },
             32 * 16 * 8)
      .bank_conflicts;
}
TEST(Planted, BanksOfVectors) {
  EXPECT_EQ(conflicts_of_lanes<Sixteen>(1, 1), 0);
  EXPECT_EQ(conflicts_of_lanes<Sixteen>(1, 2), 4);  // two ways in each of four quarters
  EXPECT_EQ(conflicts_of_lanes<Sixteen>(8, 8), 0);  // a lane of each quarter, all at the same banks
  EXPECT_EQ(conflicts_of_lanes<Sixteen>(4, 2), 4);  // two lanes of each quarter
  EXPECT_EQ(conflicts_of_lanes<TwoWords>(1, 1), 0);
  EXPECT_EQ(conflicts_of_lanes<TwoWords>(1, 2), 2);
  EXPECT_EQ(conflicts_of_lanes<TwoWords>(16, 16), 0);  // a lane of each half
}

TEST(Planted, BanksOfSingleWords) {
  const auto conflicts = [](int stride) {
    return run(
               [&](const Gpu& gpu) {
                 if (gpu.warp() == 0) gpu.store(gpu.shared<float>() + gpu.lane() * stride, 1.0f);
               },
               32 * 4 * 33)
        .bank_conflicts;
  };
  EXPECT_EQ(conflicts(1), 0);
  EXPECT_EQ(conflicts(2), 1);
  EXPECT_EQ(conflicts(32), 31);
  EXPECT_EQ(conflicts(33), 0);
}

TEST(Counted, BytesBySectors) {
  const Buffer<float> numbers(64 * 8);
  const auto count = [&](int stride, std::int64_t blocks) {
    return run([&](const Gpu& gpu) { gpu.store(numbers.data() + gpu.thread() * stride, 0.0f); }, 0, {.counts = true}, blocks);
  };
  EXPECT_EQ(count(1, 1).written_bytes, 64 * 4);
  EXPECT_EQ(count(1, 3).written_bytes, 3 * 64 * 4);
  EXPECT_EQ(count(8, 1).written_bytes, 64 * 32);
  EXPECT_EQ(count(8, 1).requested_bytes, 64 * 4);
  EXPECT_EQ(count(8, 1).moved_bytes, 64 * 32);
}

TEST(Launches, EveryBlockRunsOnceInAnyOrderByAnyNumberOfThreads) {
  for (const int threads : {1, 3}) {
    const Buffer<int> seen(100 * 64);
    run([&](const Gpu& gpu) { gpu.store(seen.data() + gpu.block() * 64 + gpu.thread(), static_cast<int>(gpu.block())); }, 0,
        {.seed = 5, .threads = threads}, 100);
    for (int i = 0; i < 6400; ++i) ASSERT_EQ(seen.data()[i], i / 64);
  }
}

// --- products -------------------------------------------------------------------------------------------------------------

std::uint16_t bits_of(float x) { return BFloat16::from_float(x).bits; }

// One row and one column, all else zeros.
float product_of(Chip chip, const std::vector<float>& a, const std::vector<float>& b, float c) {
  std::array<Line, kRows> rows{};
  std::array<Line, kColumns> columns{};
  float sums[kRows][kColumns] = {};
  for (std::size_t i = 0; i < a.size(); ++i) rows[3][i] = bits_of(a[i]), columns[5][i] = bits_of(b[i]);
  sums[3][5] = c;
  multiply_add(chip, Half::bf16, rows, columns, &sums[0][0]);
  return sums[3][5];
}

TEST(Product, SmallIntegersAreExact) {
  for (const Chip chip : {Chip::sm_80, Chip::sm_90}) {
    EXPECT_EQ(product_of(chip, {1, 2, 3, -4}, {5, 6, 7, 8}, 0.5f), 5 + 12 + 21 - 32 + 0.5f);
    EXPECT_EQ(product_of(chip, {}, {}, -0.75f), -0.75f);
  }
}

// Computed by hand from the published arithmetic: beside 2^24 a term keeps as many bits below the point as fit 24 or 25
// fractional bits, and the rest of the sum is cut off.
TEST(Product, TermsAreTruncatedWhereTheLargestStands) {
  const float large = 16777216.0f;  // 2^24
  EXPECT_EQ(product_of(Chip::sm_80, {1.5f}, {1.0f}, large), large);
  EXPECT_EQ(product_of(Chip::sm_80, {3.5f}, {1.0f}, large), large + 2);
  // The halves of two terms make a whole only where they are kept until the sum.
  EXPECT_EQ(product_of(Chip::sm_80, {1.5f, 0.5f}, {1, 1}, large), large);
  EXPECT_EQ(product_of(Chip::sm_90, {1.5f, 0.5f}, {1, 1}, large), large + 2);
  EXPECT_EQ(product_of(Chip::sm_90, {1.25f, 0.75f}, {1, 1}, large), large);
  // Sums are cut off towards zero on both sides.
  EXPECT_EQ(product_of(Chip::sm_90, {-1.5f}, {1}, -large), -large);
}

TEST(Product, OlderChipsAddTheSecondHalfToTheSumOfTheFirst) {
  std::vector<float> a(16, 0.0f), b(16, 1.0f);
  a[0] = 1.0f, a[8] = 1.0f;
  const float large = 16777216.0f;
  EXPECT_EQ(product_of(Chip::sm_90, a, b, large), large + 2);
  EXPECT_EQ(product_of(Chip::sm_80, a, b, large), large);
}

TEST(Product, WhatIsNotFiniteSpreads) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(product_of(Chip::sm_90, {infinity}, {1}, 1), infinity);
  EXPECT_TRUE(std::isnan(product_of(Chip::sm_90, {infinity}, {0}, 1)));
  EXPECT_TRUE(std::isnan(product_of(Chip::sm_90, {infinity, -infinity}, {1, 1}, 1)));
  EXPECT_EQ(product_of(Chip::sm_90, {3e38f, 3e38f}, {1, 1}, 0), infinity);
}

TEST(Product, SubnormalsCount) {
  const float tiny = std::ldexp(1.0f, -133);  // the smallest bf16
  EXPECT_EQ(product_of(Chip::sm_90, {tiny}, {4}, 0), 4 * tiny);
  EXPECT_EQ(product_of(Chip::sm_90, {tiny}, {1}, std::ldexp(1.0f, -149)), tiny + std::ldexp(1.0f, -149));
}

// Fragments go where the manual says: rows of A from shared memory, columns of B, and the sums of both halves.
TEST(Product, FragmentsOfAWarp) {
  run([](const Gpu& gpu) {
    if (gpu.warp() != 0) return;
    const auto a = gpu.shared<BFloat16>(), b = a + 16 * 16;  // a[16][16]; b[16][8], as it is used: rows of depth
    for (int i = gpu.lane(); i < 256; i += 32)
      gpu.store(a + i, BFloat16::from_float(static_cast<float>((i / 16 * 3 + i % 16) % 7)));
    for (int i = gpu.lane(); i < 128; i += 32)
      gpu.store(b + i, BFloat16::from_float(static_cast<float>((i / 8 + i % 8 * 5) % 11)));
    gpu.sync_warp();
    std::uint32_t left[4], right[4];
    gpu.load_matrices(left, a + (gpu.lane() % 16) * 16 + gpu.lane() / 16 * 8);
    // Two of the four matrices are used; the others are the same again.
    gpu.load_transposed(right, b + (gpu.lane() % 16) * 8);
    float sums[4] = {1, 2, 3, 4};
    const std::uint32_t halves[2] = {right[0], right[1]};
    gpu.mma<BFloat16>(sums, left, halves);
    for (int i = 0; i < 4; ++i) {
      const int row = gpu.lane() / 4 + i / 2 * 8, column = 2 * (gpu.lane() % 4) + i % 2;
      float sum = static_cast<float>(i + 1);
      for (int k = 0; k < 16; ++k) sum += static_cast<float>((row * 3 + k) % 7 * ((k + column * 5) % 11));
      EXPECT_EQ(sums[i], sum) << row << ", " << column;
    }
  });
}

}  // namespace
}  // namespace spillway::simt
