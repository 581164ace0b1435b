// Random numbers must be those of their counter alone, even over values, and different wherever any part of the counter is.
#include "memory/random.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <set>

namespace spillway {
namespace {

TEST(Random, IsAFunctionOfTheCounter) {
  static_assert(random_bits(1, 2, 3, 4) == random_bits(1, 2, 3, 4));
  // Indices that differ in their upper half only must differ as well.
  EXPECT_NE(random_bits(1, 2, 3, 4), random_bits(1, 2, 3, 4 + (std::uint64_t{1} << 32)));
}

TEST(Random, EveryPartOfTheCounterMatters) {
  std::set<std::uint64_t> seen;
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    for (std::uint64_t step = 0; step < 8; ++step) {
      for (std::uint64_t stream = 0; stream < 8; ++stream) {
        for (std::uint64_t high = 0; high < 8; ++high) {
          const RandomKey key = random_key(seed, step, stream, high);
          seen.insert(std::uint64_t{key.first} << 32 | key.second);
        }
      }
    }
  }
  EXPECT_EQ(seen.size(), 8u * 8 * 8 * 8);
}

// Chi squared over 256 values of each byte: mean 255, deviation sqrt(510); six deviations on either side.
TEST(Random, BytesAreEven) {
  constexpr int kNumbers = 1 << 18;
  for (int shift = 0; shift < 32; shift += 8) {
    std::array<int, 256> count{};
    for (int i = 0; i < kNumbers; ++i) ++count[random_bits(7, 1, 0, static_cast<std::uint64_t>(i)) >> shift & 255];
    double chi = 0;
    for (const int n : count) chi += std::pow(n - kNumbers / 256.0, 2) / (kNumbers / 256.0);
    EXPECT_NEAR(chi, 255, 6 * std::sqrt(510.0)) << "byte at bit " << shift;
  }
}

// One bit of the index, or one step, flips each bit of the number half of the time.
TEST(Random, NeighboursAreUnrelated) {
  constexpr int kNumbers = 1 << 14;
  const auto expect_unrelated = [](auto first, auto second, const char* what) {
    std::array<int, 32> flips{};
    for (std::uint64_t i = 0; i < kNumbers; ++i) {
      const std::uint32_t difference = first(i) ^ second(i);
      for (int bit = 0; bit < 32; ++bit) flips[bit] += difference >> bit & 1;
    }
    for (int bit = 0; bit < 32; ++bit) EXPECT_NEAR(flips[bit], kNumbers / 2, 6 * std::sqrt(kNumbers / 4.0)) << what << ", bit " << bit;
  };
  const auto plain = [](std::uint64_t i) { return random_bits(7, 1, 0, i); };
  expect_unrelated(plain, [](std::uint64_t i) { return random_bits(7, 2, 0, i); }, "steps");
  expect_unrelated(plain, [](std::uint64_t i) { return random_bits(7, 1, 1, i); }, "streams");
  for (int bit = 0; bit < 32; ++bit) {
    expect_unrelated(plain, [bit](std::uint64_t i) { return random_bits(7, 1, 0, i ^ (std::uint64_t{1} << bit)); }, "index bit");
  }
}

}  // namespace
}  // namespace spillway
