#include <functional>
#include <limits>

#include "memory/base/error.h"
#include "tests/models/every_target.h"
#include "tests/models/kernel_testing.h"

namespace spillway::testing {
namespace {

template <typename E>
class PointwiseTest : public KernelTest<E> {};
TYPED_TEST_SUITE(PointwiseTest, ComputeTypes);

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double gelu(Activation kind, double x) {
  return kind == Activation::gelu_erf ? 0.5 * x * std::erfc(-x / std::sqrt(2.0))
                                      : x * sigmoid(2 * std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x));  // (1 + tanh u) / 2
}
double gelu_slope(Activation kind, double x) {
  if (kind == Activation::gelu_erf) return 0.5 * std::erfc(-x / std::sqrt(2.0)) + x * std::exp(-x * x / 2) / std::sqrt(2 * M_PI);
  const double tanh = std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + tanh) + 0.5 * x * (1 - tanh * tanh) * std::sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
}

double gate(Activation kind, double x) {
  return kind == Activation::silu ? x * sigmoid(x)
                                  : gelu(kind == Activation::gelu_tanh ? Activation::gelu_tanh : Activation::gelu_erf, x);
}
double gate_slope(Activation kind, double x) {
  if (kind == Activation::silu) return sigmoid(x) * (1 + x * (1 - sigmoid(x)));
  return gelu_slope(kind == Activation::gelu_tanh ? Activation::gelu_tanh : Activation::gelu_erf, x);
}

// `relative` is the activation's error besides the rounding to E; `spread` says how far into its tails the gates reach.
template <typename E>
void check_gate(Activation kind, std::int64_t n, std::int64_t I, float spread, double relative) {
  SCOPED_TRACE(::testing::Message() << "gate " << static_cast<int>(kind) << ", " << n << " x " << I);
  const auto gu = random_vector<E>(n * 2 * I, 1, spread), dh = random_vector<E>(n * I, 2);
  const auto wide = widened(gu), wide_dh = widened(dh);
  std::vector<double> expected_h, expected_dgu(gu.size());
  for (std::int64_t row = 0; row < n; ++row) {
    for (std::int64_t i = 0; i < I; ++i) {
      const auto at = static_cast<std::size_t>(row * 2 * I + i);
      const double g = wide[at], u = wide[at + static_cast<std::size_t>(I)], d = wide_dh[static_cast<std::size_t>(row * I + i)];
      expected_h.push_back(gate(kind, g) * u);
      expected_dgu[at] = d * u * gate_slope(kind, g);
      expected_dgu[at + static_cast<std::size_t>(I)] = d * gate(kind, g);
    }
  }
  std::vector<E> first_h, first_dgu;
  for (const int threads : kPools) {
    const ThreadPool pool(threads);
    std::vector<E> h(dh.size()), again(dh.size()), dgu = gu, unwanted(gu.size());
    ops::gated_forward<E>(pool, kind, n, I, gu.data(), h.data());
    ops::gated_backward<E>(pool, kind, n, I, dh.data(), dgu.data(), dgu.data(), again.data());
    ops::gated_backward<E>(pool, kind, n, I, dh.data(), gu.data(), unwanted.data(), nullptr);
    expect_same_bits(again, h, "h again");
    expect_same_bits(unwanted, dgu, "dgu without h");
    if (threads == 1) {
      first_h = h;
      first_dgu = dgu;
      expect_close(h, expected_h, epsilon_of<E>() + relative, 1e-30, "h");
      expect_close(dgu, expected_dgu, epsilon_of<E>() + relative, 8 * epsilon_of<float>(), "dgu");
    }
    expect_same_bits(h, first_h, "h");
    expect_same_bits(dgu, first_dgu, "dgu");
  }
}

TYPED_TEST(PointwiseTest, Gates) {
  with_every_target([] {
    for (const auto& [n, I] : {std::pair<std::int64_t, std::int64_t>{1, 130}, {7, 48}, {96, 257}, {33, 1536}}) {
      check_gate<TypeParam>(Activation::silu, n, I, 4.0f, 4 * epsilon_of<float>());
      // The exponent's argument reaches 40 in the tails, and exp turns its rounding into a relative error.
      check_gate<TypeParam>(Activation::gelu_tanh, n, I, 2.0f, 40 * epsilon_of<float>());
      check_gate<TypeParam>(Activation::gelu_erf, n, I, 2.0f, 40 * epsilon_of<float>());
    }
  });
}

TYPED_TEST(PointwiseTest, Gelu) {
  for (const Activation kind : {Activation::gelu_tanh, Activation::gelu_erf}) {
    for (const std::int64_t count : {1, 130, 40000}) {
      const auto pre = random_vector<TypeParam>(count, 1, 2.0f), dh = random_vector<TypeParam>(count, 2);
      std::vector<double> expected_h, expected_dpre;
      for (std::size_t i = 0; i < pre.size(); ++i) {
        const double x = static_cast<double>(to_float(pre[i]));
        expected_h.push_back(gelu(kind, x));
        expected_dpre.push_back(static_cast<double>(to_float(dh[i])) * gelu_slope(kind, x));
      }
      std::vector<TypeParam> first_h, first_dpre;
      for (const int threads : kPools) {
        const ThreadPool pool(threads);
        std::vector<TypeParam> h(pre.size()), again(pre.size()), dpre(pre.size());
        ops::gelu_forward<TypeParam>(pool, kind, count, pre.data(), h.data());
        ops::gelu_backward<TypeParam>(pool, kind, count, dh.data(), pre.data(), dpre.data(), again.data());
        expect_same_bits(again, h, "h again");
        if (threads == 1) {
          first_h = h;
          first_dpre = dpre;
          // The exponent's argument reaches 40 in the tails, and exp turns its rounding into a relative error.
          expect_close(h, expected_h, epsilon_of<TypeParam>() + 40 * epsilon_of<float>(), 1e-30, "h");
          expect_close(dpre, expected_dpre, epsilon_of<TypeParam>() + 4 * epsilon_of<float>(), 8 * epsilon_of<float>(), "dpre");
        }
        expect_same_bits(h, first_h, "h");
        expect_same_bits(dpre, first_dpre, "dpre");
      }
    }
  }
}

TYPED_TEST(PointwiseTest, ActivationsKeepNanAndBearExtremes) {
  const ThreadPool pool(1);
  const float extremes[] = {NAN, 1e30f, -1e30f, 200.0f, -200.0f, 0.0f, -0.0f, 1e-30f};
  std::vector<TypeParam> x;
  for (const float value : extremes) x.push_back(from_float<TypeParam>(value));
  std::vector<TypeParam> h(8);
  for (const Activation kind : {Activation::gelu_tanh, Activation::gelu_erf}) {
    ops::gelu_forward<TypeParam>(pool, kind, 8, x.data(), h.data());
    EXPECT_TRUE(std::isnan(to_float(h[0])));
    EXPECT_FLOAT_EQ(to_float(h[1]), to_float(x[1]));
    EXPECT_EQ(to_float(h[3]), 200.0f);
    for (const std::size_t i : {2u, 4u, 5u, 6u}) EXPECT_NEAR(to_float(h[i]), 0.0f, 1e-6f) << i;
  }
  std::vector<TypeParam> gu = x;
  for (int i = 0; i < 8; ++i) gu.push_back(from_float<TypeParam>(1.0f));
  for (const auto kind : {Activation::silu, Activation::gelu_tanh, Activation::gelu_erf}) {
    ops::gated_forward<TypeParam>(pool, kind, 1, 8, gu.data(), h.data());
    EXPECT_TRUE(std::isnan(to_float(h[0])));
    EXPECT_EQ(to_float(h[3]), 200.0f);
    EXPECT_NEAR(to_float(h[4]), 0.0f, 1e-6f);
  }
}

TYPED_TEST(PointwiseTest, Softcap) {
  with_every_target([] {
    for (const float cap : {30.0f, 0.5f}) {
      for (const std::int64_t count : {1, 130, 40000}) {
        // Values reach from far below the cap to far beyond it: small ones keep their relative accuracy.
        auto x = random_vector<TypeParam>(count, 1, cap);
        for (std::size_t i = 0; i < x.size(); ++i)
          x[i] = from_float<TypeParam>(std::ldexp(to_float(x[i]), 3 - static_cast<int>(i % 16)));
        std::vector<double> expected;
        for (const double value : widened(x))
          expected.push_back(static_cast<double>(cap) * std::tanh(value / static_cast<double>(cap)));
        std::vector<TypeParam> first;
        for (const int threads : kPools) {
          const ThreadPool pool(threads);
          auto y = x;
          ops::softcap<TypeParam>(pool, count, cap, y.data());
          if (first.empty()) first = y;
          expect_same_bits(y, first, "y");
        }
        expect_close(first, expected, epsilon_of<TypeParam>() + 4 * epsilon_of<float>(), 1e-30, "y");
      }
    }
  });
}

TYPED_TEST(PointwiseTest, SoftcapKeepsNanAndBearsExtremes) {
  const ThreadPool pool(1);
  with_every_target([&] {
    std::vector<TypeParam> x;
    for (const float value : {NAN, INFINITY, -INFINITY, 1e30f, -1e30f, 200.0f, 0.0f, -0.0f, 1e-30f})
      x.push_back(from_float<TypeParam>(value));
    const TypeParam small = x.back();
    ops::softcap<TypeParam>(pool, static_cast<std::int64_t>(x.size()), 2.0f, x.data());
    EXPECT_TRUE(std::isnan(to_float(x[0])));
    for (const std::size_t i : {1u, 3u, 5u}) EXPECT_EQ(to_float(x[i]), 2.0f) << i;
    for (const std::size_t i : {2u, 4u}) EXPECT_EQ(to_float(x[i]), -2.0f) << i;
    EXPECT_EQ(to_float(x[6]), 0.0f);
    EXPECT_FALSE(std::signbit(to_float(x[6])));
    EXPECT_TRUE(std::signbit(to_float(x[7])));
    EXPECT_FLOAT_EQ(to_float(x[8]), to_float(small));
  });
  TypeParam x{};
  for (const float cap : {0.0f, -1.0f, INFINITY, NAN}) EXPECT_THROW(ops::softcap<TypeParam>(pool, 1, cap, &x), Error) << cap;
}

TYPED_TEST(PointwiseTest, Sums) {
  for (const std::int64_t count : {1, 1000, 40007}) {
    const auto a = random_vector<TypeParam>(count, 1), b = random_vector<TypeParam>(count, 2);
    const auto before = random_vector<float>(count, 3);
    const ThreadPool pool(2);
    std::vector<TypeParam> sum = a, scaled = a, back(a.size());
    std::vector<float> wide = before, cast(a.size());
    ops::add<TypeParam>(pool, count, sum.data(), b.data(), sum.data());
    ops::scale<TypeParam>(pool, count, 0.3f, scaled.data());
    ops::accumulate_into<TypeParam>(pool, count, a.data(), wide.data());
    ops::cast_to_float<TypeParam>(pool, count, a.data(), cast.data());
    ops::cast_from_float<TypeParam>(pool, count, before.data(), back.data());
    for (std::size_t i = 0; i < a.size(); ++i) {
      ASSERT_EQ(to_float(sum[i]), to_float(from_float<TypeParam>(to_float(a[i]) + to_float(b[i]))));
      ASSERT_EQ(to_float(scaled[i]), to_float(from_float<TypeParam>(to_float(a[i]) * 0.3f)));
      ASSERT_EQ(wide[i], before[i] + to_float(a[i]));
      ASSERT_EQ(cast[i], to_float(a[i]));
      ASSERT_EQ(to_float(back[i]), to_float(from_float<TypeParam>(before[i])));
    }
    ops::fill_zero(pool, count * 4, wide.data());
    EXPECT_EQ(wide, std::vector<float>(wide.size(), 0.0f));
  }
}

// Vectors must round as the scalar type does in every case: ties, carries, infinities, NaNs, denormals.
TEST(BFloat16Test, VectorsRoundAsScalars) {
  std::vector<float> values = {
      NAN, -NAN, INFINITY, -INFINITY, std::numeric_limits<float>::max(), 1.0f + 1.0f / 256, 1.0f + 3.0f / 256};
  for (std::uint32_t bits = 0; bits < 0xffffff00u; bits += 0x00fedcb5u) values.push_back(std::bit_cast<float>(bits));
  values.push_back(std::bit_cast<float>(0x7f800001u));  // rounding would make it infinite
  const ThreadPool pool(1);
  std::vector<BFloat16> rounded(values.size());
  ops::cast_from_float<BFloat16>(pool, static_cast<std::int64_t>(values.size()), values.data(), rounded.data());
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(rounded[i].bits, BFloat16::from_float(values[i]).bits) << values[i];
  EXPECT_EQ(BFloat16::from_float(1.0f + 1.0f / 256).to_float(), 1.0f);
  EXPECT_EQ(BFloat16::from_float(1.0f + 3.0f / 256).to_float(), 1.0f + 4.0f / 256);
  EXPECT_TRUE(std::isinf(BFloat16::from_float(std::numeric_limits<float>::max()).to_float()));
}

// A share of the elements is 0, the others are those of x times 1 / (1 - probability), whatever cuts the work; another site or
// key is another mask, and the two have as much in common as chance gives.
TEST(DropoutTest, KeepsTheShareThatIsAskedFor) {
  constexpr std::int64_t n = 300'007;
  const std::vector<float> x(n, 2.0f);
  const auto masked = [&](std::uint64_t site, float probability, std::uint64_t key, int threads) {
    std::vector<float> y(n, NAN);
    ops::dropout<float>(ThreadPool(threads), n, {.site = site, .probability = probability}, key, x.data(), y.data(), false);
    return y;
  };
  for (const float probability : {0.05f, 0.3f, 0.9f}) {
    const std::vector<float> y = masked(5, probability, 9, 2);
    EXPECT_EQ(y, masked(5, probability, 9, 1));
    const double p = static_cast<double>(probability), spread = 5 * std::sqrt(p * (1 - p) * n);
    const auto zeros = [](const std::vector<float>& of) { return std::count(of.begin(), of.end(), 0.0f); };
    EXPECT_NEAR(static_cast<double>(zeros(y)), p * n, spread);
    for (const float value : y) ASSERT_TRUE(value == 0 || value == 2.0f * (1.0f / (1.0f - probability))) << value;
    for (const auto& other : {masked(6, probability, 9, 2), masked(5, probability, 10, 2)}) {
      std::int64_t both = 0;
      for (std::size_t i = 0; i < y.size(); ++i) both += y[i] == 0 && other[i] == 0 ? 1 : 0;
      EXPECT_NEAR(static_cast<double>(both), p * p * n, 5 * std::sqrt(p * p * n));
    }
  }
  EXPECT_EQ(masked(5, 0.5f, 0, 2), x);
}

}  // namespace
}  // namespace spillway::testing
