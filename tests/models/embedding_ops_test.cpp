#include "tests/models/every_target.h"
#include "tests/models/kernel_testing.h"

namespace spillway::testing {
namespace {

using ops::Store;
using ops::VocabularyTile;

constexpr std::int64_t kVocabulary = 256;

std::vector<std::int32_t> random_tokens(std::int64_t n) {
  std::mt19937 generator(7);
  std::vector<std::int32_t> tokens;
  // There are few distinct tokens, so that rows collide.
  for (std::int64_t i = 0; i < n; ++i)
    tokens.push_back(static_cast<std::int32_t>(generator() % 2 ? generator() % kVocabulary : 255));
  return tokens;
}

template <typename E>
class EmbeddingTest : public KernelTest<E> {};
TYPED_TEST_SUITE(EmbeddingTest, ComputeTypes);

TYPED_TEST(EmbeddingTest, TilesGiveTheWhole) {
  for (const auto& [n, H] : {std::pair<std::int64_t, std::int64_t>{1, 48}, {7, 130}, {96, 300}}) {
    const auto tokens = random_tokens(n);
    const std::int64_t sequence = (n + 1) / 2;
    const auto table = random_vector<TypeParam>(kVocabulary * H, 1), positions = random_vector<TypeParam>(sequence * H, 2);
    for (const int threads : kPools) {
      const ThreadPool pool(threads);
      std::vector<TypeParam> x(static_cast<std::size_t>(n * H), from_float<TypeParam>(NAN));
      for (const VocabularyTile tile : {VocabularyTile{0, 100}, {100, 100}, {200, 56}}) {
        ops::embedding_forward<TypeParam>(pool, n, H, tokens.data(), tile, table.data() + tile.first * H, x.data());
      }
      ops::position_forward<TypeParam>(pool, n, H, {sequence}, positions.data(), x.data());
      for (std::int64_t row = 0; row < n; ++row) {
        for (std::int64_t i = 0; i < H; ++i) {
          const float sum = to_float(table[static_cast<std::size_t>(tokens[static_cast<std::size_t>(row)] * H + i)]) +
                            to_float(positions[static_cast<std::size_t>(row % sequence * H + i)]);
          ASSERT_EQ(to_float(x[static_cast<std::size_t>(row * H + i)]), to_float(from_float<TypeParam>(sum)));
        }
      }
    }
  }
}

// Gradients are added in the order of the tokens, so a reference in fp32 has the very same bits.
TYPED_TEST(EmbeddingTest, GradientsAddInTokenOrder) {
  for (const auto& [n, H] : {std::pair<std::int64_t, std::int64_t>{1, 48}, {7, 130}, {96, 300}}) {
    const auto tokens = random_tokens(n);
    const auto dx = random_vector<TypeParam>(n * H, 1);
    for (const Store store : {Store::write, Store::add}) {
      const std::vector<float> before(static_cast<std::size_t>(kVocabulary * H), 0.25f);
      std::vector<float> expected = before;
      if (store == Store::write) expected.assign(expected.size(), 0.0f);
      for (std::int64_t row = 0; row < n; ++row) {
        for (std::int64_t i = 0; i < H; ++i) {
          expected[static_cast<std::size_t>(tokens[static_cast<std::size_t>(row)] * H + i)] +=
              to_float(dx[static_cast<std::size_t>(row * H + i)]);
        }
      }
      for (const int threads : kPools) {
        const ThreadPool pool(threads);
        std::vector<float> gradient = before;
        for (const VocabularyTile tile : {VocabularyTile{0, 100}, {100, 156}}) {
          ops::embedding_backward<TypeParam>(pool, n, H, tokens.data(), tile, dx.data(), gradient.data() + tile.first * H, store);
        }
        expect_same_bits(gradient, expected, "dtable");
      }
    }
  }
}

// Rows are rounded once; gradients are not rounded before they are added.
TYPED_TEST(EmbeddingTest, Factor) {
  constexpr float kFactor = 27.712812f;
  for (const auto& [rows, hidden] : {std::pair<std::int64_t, std::int64_t>{1, 48}, {7, 130}, {96, 300}}) {
    const std::int64_t n = rows, H = hidden;  // lambdas take no structured bindings
    const auto tokens = random_tokens(n);
    const auto table = random_vector<TypeParam>(kVocabulary * H, 1), dx = random_vector<TypeParam>(n * H, 2);
    std::vector<TypeParam> expected(dx.size());
    std::vector<double> sums(table.size(), 0.25);
    for (std::size_t i = 0; i < dx.size(); ++i) {
      const std::size_t at =
          static_cast<std::size_t>(tokens[i / static_cast<std::size_t>(H)] * H) + i % static_cast<std::size_t>(H);
      expected[i] = from_float<TypeParam>(kFactor * to_float(table[at]));
      sums[at] += static_cast<double>(kFactor) * static_cast<double>(to_float(dx[i]));
    }
    with_every_target([&] {
      std::vector<float> first;
      for (const int threads : kPools) {
        const ThreadPool pool(threads);
        std::vector<TypeParam> x(dx.size());
        std::vector<float> gradient(table.size(), 0.25f);
        for (const VocabularyTile tile : {VocabularyTile{0, 100}, {100, 156}}) {
          ops::embedding_forward<TypeParam>(pool, n, H, tokens.data(), tile, table.data() + tile.first * H, x.data(), kFactor);
          ops::embedding_backward<TypeParam>(pool, n, H, tokens.data(), tile, dx.data(), gradient.data() + tile.first * H,
                                             Store::add, kFactor);
        }
        expect_same_bits(x, expected, "x");
        if (first.empty()) first = gradient;
        expect_same_bits(gradient, first, "dtable");
      }
      // Error of sums of up to n terms of the size of the factor.
      const double error = epsilon_of<float>() * static_cast<double>(n);
      expect_close(first, sums, error, error * static_cast<double>(kFactor), "dtable");
    });
  }
}

TYPED_TEST(EmbeddingTest, PositionGradients) {
  constexpr std::int64_t n = 15, H = 130, sequence = 5, rows = 8;
  const auto dx = random_vector<TypeParam>(n * H, 1);
  for (const Store store : {Store::write, Store::add}) {
    std::vector<float> expected(rows * H, store == Store::write ? 0.0f : 0.25f);
    for (std::int64_t row = 0; row < n; ++row) {
      for (std::int64_t i = 0; i < H; ++i) {
        expected[static_cast<std::size_t>(row % sequence * H + i)] += to_float(dx[static_cast<std::size_t>(row * H + i)]);
      }
    }
    for (const int threads : kPools) {
      const ThreadPool pool(threads);
      std::vector<float> gradient(rows * H, 0.25f);
      ops::position_backward<TypeParam>(pool, n, H, {sequence}, rows, dx.data(), gradient.data(), store);
      expect_same_bits(gradient, expected, "dpositions");
    }
  }
}

// Documents of many lengths, also of one row; and the same sums, in the same order, as plain loops have.
TYPED_TEST(EmbeddingTest, PositionsOfDocuments) {
  constexpr std::int64_t n = 90, H = 70, sequence = 45, rows = 48;
  std::vector<std::int32_t> first_key;
  for (const std::int32_t length : {9, 1, 1, 17, 4, 13, 45}) {
    const auto begin = static_cast<std::int32_t>(std::ssize(first_key) % sequence);
    first_key.insert(first_key.end(), static_cast<std::size_t>(length), begin);
  }
  ASSERT_EQ(std::ssize(first_key), n);
  const auto position = [&](std::int64_t row) { return row % sequence - first_key[static_cast<std::size_t>(row)]; };
  const auto table = random_vector<TypeParam>(rows * H, 1), dx = random_vector<TypeParam>(n * H, 2);
  std::vector<TypeParam> expected(dx.size());
  std::vector<float> sums(table.size(), 0.25f);
  for (std::int64_t row = 0; row < n; ++row) {
    for (std::int64_t i = 0; i < H; ++i) {
      const auto at = static_cast<std::size_t>(row * H + i), in_table = static_cast<std::size_t>(position(row) * H + i);
      expected[at] = from_float<TypeParam>(to_float(dx[at]) + to_float(table[in_table]));
      sums[in_table] += to_float(dx[at]);
    }
  }
  with_every_target([&] {
    for (const int threads : kPools) {
      const ThreadPool pool(threads);
      std::vector<TypeParam> x = dx;
      ops::position_forward<TypeParam>(pool, n, H, {sequence, first_key.data()}, table.data(), x.data());
      expect_same_bits(x, expected, "x");
      std::vector<float> gradient(sums.size(), 0.25f);
      ops::position_backward<TypeParam>(pool, n, H, {sequence, first_key.data()}, rows, dx.data(), gradient.data(), Store::add);
      expect_same_bits(gradient, sums, "dtable");
    }
  });
}

}  // namespace
}  // namespace spillway::testing
