#include "trainer/data/data_order.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

namespace spillway {
namespace {

TEST(Permutation, EveryIndexOnce) {
  for (const std::uint64_t size : {1U, 2U, 3U, 5U, 255U, 256U, 257U, 1000U, 65536U, 100'003U}) {
    for (const std::uint64_t epoch : {0U, 1U, 2U}) {
      const Permutation permutation(size, 42, epoch);
      std::vector<bool> seen(size);
      for (std::uint64_t i = 0; i < size; ++i) {
        const std::uint64_t at = permutation.at(i);
        ASSERT_LT(at, size);
        ASSERT_FALSE(seen[at]) << size;
        seen[at] = true;
      }
    }
  }
}

TEST(Permutation, AllOrdersOfAFewComeUpAboutEqually) {
  std::map<std::vector<std::uint64_t>, int> orders;
  constexpr int kEpochs = 24'000;
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    const Permutation permutation(4, 1, static_cast<std::uint64_t>(epoch));
    orders[{permutation.at(0), permutation.at(1), permutation.at(2), permutation.at(3)}]++;
  }
  EXPECT_EQ(orders.size(), 24U);
  for (const auto& [order, count] : orders) EXPECT_NEAR(count, kEpochs / 24, 6 * 31);  // six standard deviations of a fair draw
}

TEST(Permutation, LargeSizesDoNotKeepTheOrder) {
  constexpr std::uint64_t kSize = std::uint64_t{1} << 40;
  const Permutation permutation(kSize, 7, 0);
  int ascending = 0;
  for (std::uint64_t i = 0; i < 10'000; ++i) ascending += permutation.at(i) < permutation.at(i + 1) ? 1 : 0;
  EXPECT_NEAR(ascending, 5000, 300);
}

}  // namespace
}  // namespace spillway
