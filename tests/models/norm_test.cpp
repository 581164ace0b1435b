#include "tests/models/every_target.h"
#include "tests/models/kernel_testing.h"

namespace spillway::testing {
namespace {

using ops::Store;

struct Shape {
  std::int64_t n, H;
};
constexpr Shape kShapes[] = {{1, 48}, {7, 130}, {96, 48}, {200, 576}, {65, 24}};
constexpr float kEpsilon = 1e-5f;

// A norm's results in double. `centred` means LayerNorm, otherwise it is RMSNorm.
struct Reference {
  std::vector<double> y, mean, rstd, dx, dweight, dbias;
};

Reference reference(bool centred, std::int64_t n, std::int64_t H, const std::vector<double>& x, const std::vector<double>& w,
                    const std::vector<double>& b, const std::vector<double>& dy, const std::vector<double>& residual) {
  Reference r;
  r.y.resize(x.size());
  r.dx.resize(x.size());
  r.dweight.assign(w.size(), 0.0);
  r.dbias.assign(w.size(), 0.0);
  for (std::int64_t row = 0; row < n; ++row) {
    const double* in = x.data() + row * H;
    const double* d = dy.data() + row * H;
    double mean = 0, variance = 0, mean_g = 0, mean_gu = 0;
    for (std::int64_t i = 0; centred && i < H; ++i) mean += in[i] / static_cast<double>(H);
    for (std::int64_t i = 0; i < H; ++i) variance += (in[i] - mean) * (in[i] - mean) / static_cast<double>(H);
    const double rstd = 1 / std::sqrt(variance + static_cast<double>(kEpsilon));
    for (std::int64_t i = 0; i < H; ++i) {
      const auto column = static_cast<std::size_t>(i);
      const double u = (in[i] - mean) * rstd, g = d[i] * w[column];
      r.y[static_cast<std::size_t>(row * H + i)] = w[column] * u + (centred ? b[column] : 0.0);
      r.dweight[column] += d[i] * u;
      r.dbias[column] += d[i];
      mean_g += g / static_cast<double>(H);
      mean_gu += g * u / static_cast<double>(H);
    }
    for (std::int64_t i = 0; i < H; ++i) {
      const double u = (in[i] - mean) * rstd, g = d[i] * w[static_cast<std::size_t>(i)];
      r.dx[static_cast<std::size_t>(row * H + i)] =
          residual[static_cast<std::size_t>(row * H + i)] + rstd * (g - (centred ? mean_g : 0.0) - u * mean_gu);
    }
    r.mean.push_back(mean);
    r.rstd.push_back(rstd);
  }
  return r;
}

struct Outputs {
  explicit Outputs(std::int64_t n, std::int64_t H) : mean(static_cast<std::size_t>(n)), rstd(mean) {
    dweight.assign(static_cast<std::size_t>(H), 2.0f);  // the gradient is added to this
    dbias.assign(static_cast<std::size_t>(H), -1.0f);
  }
  std::vector<float> mean, rstd, dweight, dbias;
};

// The weights for which `stored` stands.
template <typename E>
std::vector<double> shifted(const std::vector<E>& stored, float offset) {
  auto weights = widened(stored);
  for (double& w : weights) w += static_cast<double>(offset);
  return weights;
}

// G is the type of dy; `offset` is RMSNorm's.
template <typename E, typename G>
void check(bool centred, std::int64_t n, std::int64_t H, float offset = 0.0f) {
  SCOPED_TRACE(::testing::Message() << (centred ? "LayerNorm " : "RMSNorm ") << n << " x " << H << ", offset " << offset);
  const auto x = random_vector<E>(n * H, 1, 2.0f, 0.5f), w = random_vector<E>(H, 2, 0.3f, 1.0f - offset),
             b = random_vector<E>(H, 3);
  const auto dy = random_vector<G>(n * H, 4);
  const auto residual = random_vector<E>(n * H, 5);
  const auto expected = reference(centred, n, H, widened(x), shifted(w, offset), widened(b), widened(dy), widened(residual));
  std::vector<E> first_y, first_dx;
  std::vector<float> first_dweight;
  for (const int threads : kPools) {
    const ThreadPool pool(threads);
    Outputs out(n, H);
    std::vector<E> y(x.size()), again(x.size()), dx = residual;
    if (centred) {
      Scratch scratch(ops::layernorm_backward_scratch_bytes(n, H));
      ops::layernorm_forward<E>(pool, n, H, x.data(), w.data(), b.data(), kEpsilon, y.data(), out.mean.data(), out.rstd.data());
      ops::layernorm_apply<E>(pool, n, H, x.data(), w.data(), b.data(), out.mean.data(), out.rstd.data(), again.data());
      ops::layernorm_backward<E, G>(pool, n, H, dy.data(), x.data(), w.data(), out.mean.data(), out.rstd.data(), dx.data(),
                                    dx.data(), out.dweight.data(), out.dbias.data(), Store::add, scratch.data());
    } else {
      Scratch scratch(ops::rmsnorm_backward_scratch_bytes(n, H));
      ops::rmsnorm_forward<E>(pool, n, H, x.data(), w.data(), kEpsilon, y.data(), out.rstd.data(), offset);
      ops::rmsnorm_apply<E>(pool, n, H, x.data(), w.data(), out.rstd.data(), again.data(), offset);
      ops::rmsnorm_backward<E, G>(pool, n, H, dy.data(), x.data(), w.data(), out.rstd.data(), dx.data(), dx.data(),
                                  out.dweight.data(), Store::add, scratch.data(), offset);
    }
    expect_same_bits(again, y, "y applied again");
    if (threads > 1) {
      expect_same_bits(y, first_y, "y");
      expect_same_bits(dx, first_dx, "dx");
      expect_same_bits(out.dweight, first_dweight, "dweight");
      continue;
    }
    first_y = y;
    first_dx = dx;
    first_dweight = out.dweight;
    // Every value has sums of H terms in fp32 behind it; the value itself is rounded to E once.
    const double row = epsilon_of<float>() * (16 + static_cast<double>(H) / 16),
                 column = epsilon_of<float>() * (8 + static_cast<double>(n));
    expect_close(y, expected.y, epsilon_of<E>() + row, row, "y");
    expect_close(out.rstd, expected.rstd, row, 0.0, "rstd");
    expect_close(dx, expected.dx, epsilon_of<E>() + row, row, "dx");
    auto dweight = expected.dweight, dbias = expected.dbias;
    for (double& value : dweight) value += 2.0;
    for (double& value : dbias) value -= 1.0;
    expect_close(out.dweight, dweight, row, 4 * column, "dweight");
    if (centred) {
      expect_close(out.mean, expected.mean, row, row, "mean");
      expect_close(out.dbias, dbias, row, 4 * column, "dbias");
    }
  }
}

template <typename E>
class NormTest : public KernelTest<E> {};
TYPED_TEST_SUITE(NormTest, ComputeTypes);

TYPED_TEST(NormTest, MatchesTheFormula) {
  for (const auto& [n, H] : kShapes) {
    for (const bool centred : {false, true}) {
      check<TypeParam, TypeParam>(centred, n, H);
      check<TypeParam, float>(centred, n, H);
    }
  }
}

TYPED_TEST(NormTest, WeightsStoredLessOne) {
  with_every_target([] {
    for (const auto& [n, H] : kShapes) {
      check<TypeParam, TypeParam>(false, n, H, 1.0f);
      check<TypeParam, float>(false, n, H, 1.0f);
    }
  });
}

// The result is rounded once, both with a residual in memory of its own and with one in y.
TYPED_TEST(NormTest, AddsToAResidual) {
  with_every_target([] {
    for (const float offset : {0.0f, 1.0f}) {
      for (const auto& [n, H] : kShapes) {
        const auto x = random_vector<TypeParam>(n * H, 1, 2.0f), w = random_vector<TypeParam>(H, 2, 0.3f, 1.0f - offset);
        const auto residual = random_vector<TypeParam>(n * H, 3);
        const std::vector<double> none(x.size());
        auto expected = reference(false, n, H, widened(x), shifted(w, offset), none, none, none).y;
        for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += static_cast<double>(to_float(residual[i]));
        std::vector<TypeParam> first;
        for (const int threads : kPools) {
          const ThreadPool pool(threads);
          std::vector<TypeParam> y(x.size()), in_place = residual, alone(x.size());
          std::vector<float> rstd(static_cast<std::size_t>(n)), rstd_alone(rstd);
          ops::rmsnorm_forward<TypeParam>(pool, n, H, x.data(), w.data(), kEpsilon, y.data(), rstd.data(), offset,
                                          residual.data());
          ops::rmsnorm_forward<TypeParam>(pool, n, H, x.data(), w.data(), kEpsilon, in_place.data(), rstd.data(), offset,
                                          in_place.data());
          ops::rmsnorm_forward<TypeParam>(pool, n, H, x.data(), w.data(), kEpsilon, alone.data(), rstd_alone.data(), offset);
          if (first.empty()) first = y;
          expect_same_bits(y, first, "y");
          expect_same_bits(in_place, first, "y in place");
          expect_same_bits(rstd, rstd_alone, "rstd");
        }
        const double row = epsilon_of<float>() * (16 + static_cast<double>(H) / 16);
        expect_close(first, expected, epsilon_of<TypeParam>() / 2 + row, 4 * row, "y");
      }
    }
  });
}

TYPED_TEST(NormTest, WritesOverOldGradients) {
  constexpr std::int64_t n = 9, H = 48;
  const ThreadPool pool(2);
  const auto x = random_vector<TypeParam>(n * H, 1), w = random_vector<TypeParam>(H, 2), dy = random_vector<TypeParam>(n * H, 3);
  std::vector<float> rstd(n, 1.0f), garbage(H, NAN), zeros(H, 0.0f);
  std::vector<TypeParam> dx(n * H);
  Scratch scratch(ops::rmsnorm_backward_scratch_bytes(n, H));
  ops::rmsnorm_backward<TypeParam, TypeParam>(pool, n, H, dy.data(), x.data(), w.data(), rstd.data(), nullptr, dx.data(),
                                              garbage.data(), Store::write, scratch.data());
  ops::rmsnorm_backward<TypeParam, TypeParam>(pool, n, H, dy.data(), x.data(), w.data(), rstd.data(), nullptr, dx.data(),
                                              zeros.data(), Store::add, scratch.data());
  EXPECT_EQ(garbage, zeros);
}

// The gradient must be the slope of the value, by central differences of the sum of dy * y.
TEST(NormTest, GradientIsTheSlope) {
  constexpr std::int64_t n = 2, H = 24;
  const ThreadPool pool(1);
  const auto w = random_vector<float>(H, 2, 0.3f, 1.0f), dy = random_vector<float>(n * H, 3);
  auto x = random_vector<float>(n * H, 1);
  std::vector<float> y(n * H), rstd(n), dx(n * H), dweight(H);
  const auto value = [&] {
    ops::rmsnorm_forward<float>(pool, n, H, x.data(), w.data(), kEpsilon, y.data(), rstd.data());
    double sum = 0;
    for (std::size_t i = 0; i < y.size(); ++i) sum += static_cast<double>(y[i]) * static_cast<double>(dy[i]);
    return sum;
  };
  value();
  Scratch scratch(ops::rmsnorm_backward_scratch_bytes(n, H));
  ops::rmsnorm_backward<float, float>(pool, n, H, dy.data(), x.data(), w.data(), rstd.data(), nullptr, dx.data(), dweight.data(),
                                      Store::write, scratch.data());
  constexpr float kStep = 1.0f / 128;
  for (std::size_t i = 0; i < x.size(); i += 5) {
    const float centre = x[i];
    x[i] = centre + kStep;
    const double up = value();
    x[i] = centre - kStep;
    const double down = value();
    x[i] = centre;
    EXPECT_NEAR(static_cast<double>(dx[i]), (up - down) / (2 * static_cast<double>(kStep)), 2e-3) << i;
  }
}

}  // namespace
}  // namespace spillway::testing
