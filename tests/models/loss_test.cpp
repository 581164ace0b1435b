#include "memory/base/error.h"
#include "tests/models/every_target.h"
#include "tests/models/kernel_testing.h"

namespace spillway::testing {
namespace {

using ops::VocabularyTile;

struct State {
  explicit State(std::int64_t n) : maximum(static_cast<std::size_t>(n)), sum(maximum.size()), target(maximum.size()) {}
  ops::SoftmaxState view() { return {maximum.data(), sum.data(), target.data()}; }
  std::vector<float> maximum, sum, target;
};

std::vector<VocabularyTile> tiles(std::int64_t vocabulary, std::int64_t rows) {
  std::vector<VocabularyTile> all;
  for (std::int64_t first = 0; first < vocabulary; first += rows) all.push_back({first, std::min(rows, vocabulary - first)});
  return all;
}

template <typename E>
struct Result {
  std::vector<E> dlogits;
  std::vector<float> log_sum_exp, losses;
  double sum = 0;
};

template <typename E>
Result<E> run(const ThreadPool& pool, std::int64_t n, std::int64_t vocabulary, std::int64_t tile_rows,
              const std::vector<E>& logits, const std::vector<std::int32_t>& targets, float factor, float cap = 0.0f) {
  Result<E> result{logits, std::vector<float>(static_cast<std::size_t>(n)), std::vector<float>(static_cast<std::size_t>(n))};
  State state(n);
  Scratch scratch(ops::loss_finish_scratch_bytes(n));
  ops::loss_begin(n, state.view());
  for (const auto& tile : tiles(vocabulary, tile_rows)) {
    ops::loss_tile<E>(pool, n, tile, logits.data() + tile.first, vocabulary, targets.data(), state.view());
  }
  result.sum = ops::loss_finish(n, targets.data(), state.view(), result.log_sum_exp.data(), result.losses.data(), scratch.data());
  for (const auto& tile : tiles(vocabulary, tile_rows)) {
    ops::loss_gradient_tile<E>(pool, n, tile, result.dlogits.data() + tile.first, vocabulary, targets.data(),
                               result.log_sum_exp.data(), factor, cap);
  }
  return result;
}

template <typename E>
class LossTest : public KernelTest<E> {};
TYPED_TEST_SUITE(LossTest, ComputeTypes);

// With a cap, softcap() makes the logits from random ones, rounded to E.
template <typename E>
void check(std::int64_t n, std::int64_t vocabulary, std::int64_t tile, float cap) {
  SCOPED_TRACE(::testing::Message() << n << " x " << vocabulary << ", cap " << cap);
  auto logits = random_vector<E>(n * vocabulary, 1, 5.0f);
  if (cap != 0) ops::softcap<E>(ThreadPool(1), n * vocabulary, cap, logits.data());
  std::vector<std::int32_t> targets;
  for (std::int64_t i = 0; i < n; ++i)
    targets.push_back(i % 5 == 3 ? ops::kIgnoredTarget : static_cast<std::int32_t>(i * 37 % vocabulary));
  constexpr float kFactor = 0.125f;
  std::vector<double> losses, log_sum_exp, dlogits(logits.size());
  double sum = 0;
  for (std::int64_t row = 0; row < n; ++row) {
    const E* x = logits.data() + row * vocabulary;
    double total = 0;
    for (std::int64_t v = 0; v < vocabulary; ++v) total += std::exp(static_cast<double>(to_float(x[v])));
    const std::int32_t target = targets[static_cast<std::size_t>(row)];
    const bool counted = target != ops::kIgnoredTarget;
    log_sum_exp.push_back(std::log(total));
    losses.push_back(counted ? std::log(total) - static_cast<double>(to_float(x[target])) : 0.0);
    sum += losses.back();
    for (std::int64_t v = 0; v < vocabulary; ++v) {
      const double logit = static_cast<double>(to_float(x[v])), p = std::exp(logit) / total;
      const double share = cap == 0 ? 0 : logit / static_cast<double>(cap), slope = std::max(0.0, 1 - share * share);
      dlogits[static_cast<std::size_t>(row * vocabulary + v)] =
          counted ? (p - (v == target)) * static_cast<double>(kFactor) * slope : 0.0;
    }
  }
  Result<E> first;
  for (const int threads : kPools) {
    const ThreadPool pool(threads);
    const auto result = run<E>(pool, n, vocabulary, tile, logits, targets, kFactor, cap);
    if (threads == 1) {
      first = result;
      // log_sum_exp is rounded to fp32 near 20; exp makes its absolute error relative.
      const double absolute = 32 * epsilon_of<float>();
      expect_close(result.log_sum_exp, log_sum_exp, epsilon_of<float>(), absolute, "log_sum_exp");
      expect_close(result.losses, losses, epsilon_of<float>(), absolute, "losses");
      EXPECT_NEAR(result.sum, sum, absolute * static_cast<double>(n));
      // The slope of a cap is near 1 or near 0, with the error of its square.
      const double slope_error = cap == 0 ? 0 : 4 * epsilon_of<float>() * static_cast<double>(kFactor);
      expect_close(result.dlogits, dlogits, epsilon_of<E>() + absolute, 1e-12 + slope_error, "dlogits");
    }
    expect_same_bits(result.dlogits, first.dlogits, "dlogits");
    expect_same_bits(result.log_sum_exp, first.log_sum_exp, "log_sum_exp");
    EXPECT_EQ(result.sum, first.sum);
  }
}

TYPED_TEST(LossTest, MatchesTheWholeSoftmax) {
  check<TypeParam>(1, 256, 256, 0);
  check<TypeParam>(7, 130, 48, 0);
  check<TypeParam>(96, 1000, 333, 0);
}

// A cap of 30 hardly bends these logits, many reach 4, and bf16 rounds some of them to more than 3.995.
TYPED_TEST(LossTest, CappedLogits) {
  with_every_target([] {
    for (const float cap : {30.0f, 4.0f, 3.995f}) {
      check<TypeParam>(1, 256, 256, cap);
      check<TypeParam>(7, 130, 48, cap);
      check<TypeParam>(96, 300, 133, cap);
    }
  });
}

TYPED_TEST(LossTest, CapsThatAreNone) {
  const ThreadPool pool(1);
  for (const float cap : {-1.0f, INFINITY, NAN}) {
    EXPECT_THROW(run<TypeParam>(pool, 1, 4, 4, std::vector<TypeParam>(4), {0}, 1.0f, cap), Error) << cap;
  }
}

TYPED_TEST(LossTest, ExtremeLogitsStayFinite) {
  const ThreadPool pool(1);
  std::vector<TypeParam> logits;
  for (const float value : {1000.0f, -1000.0f, 999.0f, 0.0f, -1e4f, -5.0f, -1e4f, -1e4f})
    logits.push_back(from_float<TypeParam>(value));
  const auto result = run<TypeParam>(pool, 2, 4, 2, logits, {0, 1}, 1.0f);
  EXPECT_TRUE(std::isfinite(result.sum));
  EXPECT_TRUE(ops::all_finite<TypeParam>(pool, 8, result.dlogits.data()));
}

TYPED_TEST(LossTest, NanIsNotHidden) {
  const ThreadPool pool(1);
  for (const std::int64_t at : {0, 20, 69}) {
    auto logits = random_vector<TypeParam>(70, 1);
    logits[static_cast<std::size_t>(at)] = from_float<TypeParam>(NAN);
    EXPECT_TRUE(std::isnan(run<TypeParam>(pool, 1, 70, 35, logits, {3}, 1.0f).sum)) << at;
    for (const TypeParam value : run<TypeParam>(pool, 1, 70, 35, logits, {3}, 1.0f, 5.0f).dlogits)
      EXPECT_TRUE(std::isnan(to_float(value))) << at;
  }
}

}  // namespace
}  // namespace spillway::testing
