// Random numbers must depend on their counter alone, be even over all values, and differ wherever any part of the counter
// differs.
#include "memory/base/random.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <set>
#include <vector>

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
    for (int bit = 0; bit < 32; ++bit)
      EXPECT_NEAR(flips[bit], kNumbers / 2, 6 * std::sqrt(kNumbers / 4.0)) << what << ", bit " << bit;
  };
  const auto plain = [](std::uint64_t i) { return random_bits(7, 1, 0, i); };
  expect_unrelated(plain, [](std::uint64_t i) { return random_bits(7, 2, 0, i); }, "steps");
  expect_unrelated(plain, [](std::uint64_t i) { return random_bits(7, 1, 1, i); }, "streams");
  for (int bit = 0; bit < 32; ++bit) {
    expect_unrelated(plain, [bit](std::uint64_t i) { return random_bits(7, 1, 0, i ^ (std::uint64_t{1} << bit)); }, "index bit");
  }
}

// Stochastic rounding needs these to be uncorrelated: the 16-bit halves of a number, one for m and one for v, of elements beside
// each other, in the same place of the next rows, and one key away. The mean of a product has deviation 1/12 / sqrt(n).
TEST(Random, HalvesAreUncorrelated) {
  constexpr std::size_t kNumbers = 1 << 16;
  std::vector<std::size_t> lags;
  for (std::size_t lag = 1; lag <= 64; ++lag) lags.push_back(lag);
  for (const std::size_t row : {96, 128, 576, 768, 1024, 1536, 2048, 3072, 4096, 5632, 8192, 11008, 14336, 16384, 32768, 65536})
    lags.push_back(row);
  const auto halves = [](std::uint64_t step, int shift) {
    std::vector<double> result(2 * kNumbers);
    for (std::size_t i = 0; i < result.size(); ++i)
      result[i] = ((random_bits(7, step, 3, i) >> shift & 0xffff) + 0.5) / 65536 - 0.5;
    return result;
  };
  const std::array numbers{halves(1, 0), halves(1, 16)}, next_step{halves(2, 0), halves(2, 16)};
  const auto correlation = [](const std::vector<double>& a, const std::vector<double>& b, std::size_t lag) {
    double sum = 0;
    for (std::size_t i = 0; i < kNumbers; ++i) sum += a[i] * b[i + lag];
    return sum / kNumbers;
  };
  const double limit = 6.0 / 12 / std::sqrt(static_cast<double>(kNumbers));
  for (const auto& a : numbers) {
    for (const auto& b : numbers) {
      for (const std::size_t lag : lags) EXPECT_NEAR(correlation(a, b, lag), 0, limit) << "lag " << lag;
    }
    for (const auto& b : next_step) EXPECT_NEAR(correlation(a, b, 0), 0, limit) << "next step";
  }
  EXPECT_NEAR(correlation(numbers[0], numbers[1], 0), 0, limit) << "lower and upper half";
}

}  // namespace
}  // namespace spillway
