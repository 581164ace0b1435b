#include "tests/models/kernel_testing.h"

namespace spillway::testing {
namespace {

using ops::Store;

template <typename E>
class ReduceTest : public KernelTest<E> {};
TYPED_TEST_SUITE(ReduceTest, ComputeTypes);

TYPED_TEST(ReduceTest, ColumnSums) {
  for (const auto& [n, columns] : {std::pair<std::int64_t, std::int64_t>{1, 48}, {7, 130}, {96, 24}, {200, 2500}, {2048, 12}}) {
    const auto dy = random_vector<TypeParam>(n * columns, 1);
    std::vector<double> expected(static_cast<std::size_t>(columns), 0.0);
    for (std::size_t i = 0; i < dy.size(); ++i) {
      expected[i % static_cast<std::size_t>(columns)] += static_cast<double>(to_float(dy[i]));
    }
    std::vector<float> first;
    for (const int threads : kPools) {
      const ThreadPool pool(threads);
      Scratch scratch(ops::column_sums_scratch_bytes(n, columns));
      std::vector<float> sums(expected.size(), NAN), twice;
      ops::column_sums<TypeParam>(pool, n, columns, dy.data(), sums.data(), Store::write, scratch.data());
      if (threads == 1) {
        first = sums;
        // Blocks of 64 rows are summed one row after the other, then pairwise.
        expect_close(sums, expected, epsilon_of<float>(), epsilon_of<float>() * 64 * 8, "sums");
      }
      expect_same_bits(sums, first, "sums");
      twice = sums;
      ops::column_sums<TypeParam>(pool, n, columns, dy.data(), twice.data(), Store::add, scratch.data());
      for (std::size_t i = 0; i < sums.size(); ++i) ASSERT_EQ(twice[i], 2 * sums[i]);
    }
  }
}

TYPED_TEST(ReduceTest, AllFinite) {
  const ThreadPool pool(2);
  for (const std::int64_t count : {1, 130, 200000}) {
    auto x = random_vector<TypeParam>(count, 1);
    EXPECT_TRUE(ops::all_finite<TypeParam>(pool, count, x.data()));
    for (const float bad : {NAN, INFINITY, -INFINITY}) {
      for (const std::size_t at : {std::size_t{0}, x.size() / 2, x.size() - 1}) {
        const TypeParam before = x[at];
        x[at] = from_float<TypeParam>(bad);
        EXPECT_FALSE(ops::all_finite<TypeParam>(pool, count, x.data())) << bad << " at " << at;
        x[at] = before;
      }
    }
  }
}

TEST(ReduceTest, TreeSumAddsPairwise) {
  std::vector<double> values = {1e16, 1.0, -1e16, 1.0, 3.0};
  EXPECT_EQ(ops::tree_sum(values), ((1e16 + 1.0) + (-1e16 + 1.0)) + 3.0);
  EXPECT_EQ(ops::tree_sum({}), 0.0);
}

}  // namespace
}  // namespace spillway::testing
