#include "memory/plan/square_tree.h"
#include "tests/models/every_target.h"
#include "tests/models/kernel_testing.h"

namespace spillway::testing {
namespace {

template <typename E>
class SquaresTest : public KernelTest<E> {};
TYPED_TEST_SUITE(SquaresTest, ComputeTypes);

// Follows the definition: four running sums per leaf, then halves. Elements beyond the end are zeros.
template <typename E>
double plain_squares(const std::vector<E>& x, std::int64_t begin, std::int64_t count) {
  if (count > kSquareLeaf) return plain_squares(x, begin, count / 2) + plain_squares(x, begin + count / 2, count / 2);
  double sums[4] = {};
  for (std::int64_t i = 0; i < count && begin + i < std::ssize(x); ++i) {
    const double value = to_float(x[static_cast<std::size_t>(begin + i)]);
    sums[i % 4] += value * value;
  }
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// Numbers of all sizes, so that sums in another order have other bits.
template <typename E>
std::vector<E> numbers(std::int64_t count) {
  const auto sizes = random_vector<float>(count, 2, 4);
  auto x = random_vector<E>(count, 1);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = from_float<E>(to_float(x[i]) * std::exp(sizes[i]));
  return x;
}

TYPED_TEST(SquaresTest, AreAddedAlongTheTreeWhateverTheVectorsWidth) {
  for (const std::int64_t count : {1, 16, 47, 48, 1000, 1024, 5 * 1024, 9001}) {
    const auto x = numbers<TypeParam>(count);
    with_every_target([&] {
      for (std::int64_t node = kSquareLeaf; node <= kSquareStretch; node *= 2) {
        std::vector<double> sums(static_cast<std::size_t>((count + node - 1) / node), NAN), expected;
        ops::square_nodes<TypeParam>(count, node, x.data(), sums.data());
        for (std::int64_t begin = 0; begin < count; begin += node) expected.push_back(plain_squares(x, begin, node));
        ASSERT_EQ(sums, expected) << count << " in nodes of " << node;
      }
    });
  }
}

TYPED_TEST(SquaresTest, RoundingAndSquaringAreTheTwoOneAfterTheOther) {
  const ThreadPool pool(1);
  for (const std::int64_t count : {5, 576, 1024, 9001}) {
    const auto x = numbers<float>(count);
    std::vector<TypeParam> rounded(x.size());
    ops::cast_from_float(pool, count, x.data(), rounded.data());
    for (const std::int64_t node : {std::int64_t{64}, kSquareStretch}) {
      std::vector<double> expected(static_cast<std::size_t>((count + node - 1) / node)), sums(expected.size());
      std::vector<TypeParam> y(x.size());
      ops::square_nodes(count, node, rounded.data(), expected.data());
      ops::round_and_square_nodes(count, node, x.data(), y.data(), sums.data());
      expect_same_bits(y, rounded, "rounded");
      EXPECT_EQ(sums, expected);
    }
  }
}

TYPED_TEST(SquaresTest, WhatIsNotFiniteIsNotFiniteInTheSum) {
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    for (const std::size_t at : {0, 17, 1023, 1500}) {
      auto x = numbers<TypeParam>(1501);
      x[at] = from_float<TypeParam>(bad);
      double sums[2];
      ops::square_nodes<TypeParam>(std::ssize(x), kSquareStretch, x.data(), sums);
      EXPECT_FALSE(std::isfinite(sums[at / 1024])) << bad << " at " << at;
      EXPECT_TRUE(std::isfinite(sums[1 - at / 1024]));
    }
  }
}

}  // namespace
}  // namespace spillway::testing
