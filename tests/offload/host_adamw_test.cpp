// The update must equal the formulas to the last bit, on every instruction set, however a run is cut and threaded.
#include "offload/host_adamw.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "memory/base/random.h"
#include "tests/models/every_target.h"

namespace spillway {
namespace {

// --- the split master -----------------------------------------------------------------------------------------------------

TEST(SplitMaster, ComesBackForEveryLowHalf) {
  // Signs, zeros, subnormals, ordinary numbers, the largest, infinity and NaN.
  for (const std::uint32_t high :
       {0x0000u, 0x8000u, 0x0001u, 0x3f80u, 0xbf80u, 0x3f81u, 0x7f7fu, 0xff7fu, 0x7f80u, 0x7fc0u, 0xffffu}) {
    for (std::uint32_t low = 0; low < 0x10000; ++low) {
      const std::uint32_t bits = high << 16 | low;
      const SplitMaster split = split_master(std::bit_cast<float>(bits));
      ASSERT_EQ(std::bit_cast<std::uint32_t>(join_master(split.high, split.low)), bits);
    }
  }
}

TEST(SplitMaster, HighHalfIsTheNearestAndTiesGoAwayFromZero) {
  for (const float sign : {1.0f, -1.0f}) {
    for (std::uint32_t low = 0; low < 0x10000; ++low) {
      for (const std::uint32_t high : {0x3f80u, 0x3f81u}) {
        const float value = sign * std::bit_cast<float>(high << 16 | low);
        const BFloat16 rounded = split_master(value).high;
        if (low == 0x8000) {
          ASSERT_GT(std::abs(rounded.to_float()), std::abs(value));
        } else {
          ASSERT_EQ(rounded, BFloat16::from_float(value)) << value;
        }
      }
    }
  }
}

// --- the update -----------------------------------------------------------------------------------------------------------

constexpr AdamWSettings kSettings{
    .step = 3, .lr = 3e-3, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1, .gradient_scale = 0.37, .seed = 11};

float uniform(std::uint64_t stream, std::int64_t i) {  // in [-1, 1)
  return static_cast<float>(static_cast<std::int32_t>(random_bits(5, 0, stream, static_cast<std::uint64_t>(i)))) * 0x1p-31f;
}

struct Numbers {
  explicit Numbers(std::int64_t n) : w(n), m(n), v(n), g(n) {
    for (std::int64_t i = 0; i < n; ++i) {
      // Scales of many orders: subnormal moments, gradients of 0.
      const float scale = std::ldexp(1.0f, static_cast<int>(random_bits(5, 1, 0, static_cast<std::uint64_t>(i)) % 60) - 50);
      w[i] = uniform(1, i);
      m[i] = uniform(2, i) * scale;
      v[i] = std::abs(uniform(3, i)) * scale * scale;
      g[i] = i % 7 == 0 ? 0.0f : uniform(4, i) * scale;
    }
  }
  std::vector<float> w, m, v, g;
};

BFloat16 rounded_stochastically(float value, std::uint32_t random) {
  if (std::isnan(value)) return BFloat16::from_float(value);
  return {static_cast<std::uint16_t>((std::bit_cast<std::uint32_t>(value) + random) >> 16)};
}

// The golden formulas in plain fp32.
void reference_step(const AdamWSettings& s, Decay decay, float g, float& w, float& m, float& v) {
  const auto step_size = static_cast<float>(s.lr / (1 - std::pow(s.beta1, static_cast<double>(s.step))));
  const auto inverse_bias2 = static_cast<float>(1 / (1 - std::pow(s.beta2, static_cast<double>(s.step))));
  g *= static_cast<float>(s.gradient_scale);
  m = static_cast<float>(s.beta1) * m + static_cast<float>(1 - s.beta1) * g;
  v = static_cast<float>(s.beta2) * v + static_cast<float>(1 - s.beta2) * g * g;
  if (decay == Decay::applied) w *= static_cast<float>(1 - s.lr * s.weight_decay);
  w -= step_size * m / (std::sqrt(v * inverse_bias2) + static_cast<float>(s.epsilon));
}

template <typename T>
std::vector<T> rounded(const std::vector<float>& values) {
  std::vector<T> result;
  for (const float value : values) result.push_back(from_float<T>(value));
  return result;
}

// Values are compared as bytes: -0 and NaNs count.
template <typename T>
void expect_same(const std::vector<T>& a, const std::vector<T>& b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) ASSERT_EQ(std::memcmp(&a[i], &b[i], sizeof(T)), 0) << what << "[" << i << "]";
}

template <typename MomentType, typename GradientType>
struct SplitForm {
  using Moment = MomentType;
  using Gradient = GradientType;
  explicit SplitForm(const Numbers& n) : m(rounded<Moment>(n.m)), v(rounded<Moment>(n.v)) {
    for (const float w : n.w) high.push_back(split_master(w).high), low.push_back(split_master(w).low);
  }
  SplitState<Moment> at(std::int64_t i) { return {high.data() + i, low.data() + i, m.data() + i, v.data() + i}; }
  float weight(std::size_t i) const { return join_master(high[i], low[i]); }
  void set_weight(std::size_t i, float w) { high[i] = split_master(w).high, low[i] = split_master(w).low; }
  void expect_equals(const SplitForm& other) const {
    expect_same(high, other.high, "high");
    expect_same(low, other.low, "low");
    expect_same(m, other.m, "m");
    expect_same(v, other.v, "v");
  }
  std::vector<BFloat16> high;
  std::vector<std::int16_t> low;
  std::vector<Moment> m, v;
};

struct Fp32Form {
  using Moment = float;
  using Gradient = float;
  explicit Fp32Form(const Numbers& n) : w(n.w), m(n.m), v(n.v) {}
  Fp32State at(std::int64_t i) { return {w.data() + i, m.data() + i, v.data() + i}; }
  float weight(std::size_t i) const { return w[i]; }
  void set_weight(std::size_t i, float value) { w[i] = value; }
  void expect_equals(const Fp32Form& other) const {
    expect_same(w, other.w, "weight");
    expect_same(m, other.m, "m");
    expect_same(v, other.v, "v");
  }
  std::vector<float> w, m, v;
};

struct Fp16Form {
  using Moment = float;
  using Gradient = float;
  explicit Fp16Form(const Numbers& n) : weight_(n.w.size()), master(n.w), m(n.m), v(n.v) {
    for (std::size_t i = 0; i < n.w.size(); ++i) set_weight(i, n.w[i]);
  }
  Fp16State at(std::int64_t i) { return {weight_.data() + i, master.data() + i, m.data() + i, v.data() + i}; }
  float weight(std::size_t i) const { return master[i]; }
  void set_weight(std::size_t i, float value) { master[i] = value, weight_[i] = finite_float16(value); }
  void expect_equals(const Fp16Form& other) const {
    expect_same(weight_, other.weight_, "weight");
    expect_same(master, other.master, "master");
    expect_same(m, other.m, "m");
    expect_same(v, other.v, "v");
  }
  std::vector<Float16> weight_;
  std::vector<float> master, m, v;
};

template <typename Form>
void reference_update(const AdamWSettings& s, const AdamWRun& run, const std::vector<typename Form::Gradient>& g, Form& form) {
  for (std::int64_t i = 0; i < run.count; ++i) {
    const auto k = static_cast<std::size_t>(i);
    float w = form.weight(k), m = to_float(form.m[k]), v = to_float(form.v[k]);
    reference_step(s, run.decay, to_float(g[k]), w, m, v);
    form.set_weight(k, w);
    if constexpr (sizeof(typename Form::Moment) == 2) {
      const std::uint32_t random =
          random_bits(s.seed, static_cast<std::uint64_t>(s.step), run.block, static_cast<std::uint64_t>(run.begin + i));
      form.m[k] = rounded_stochastically(m, random & 0xffff);
      form.v[k] = rounded_stochastically(v, random >> 16);
    } else {
      form.m[k] = m;
      form.v[k] = v;
    }
  }
}

template <typename Form>
class HostAdamW : public testing::Test {};
using Forms =
    testing::Types<SplitForm<float, float>, SplitForm<float, BFloat16>, SplitForm<BFloat16, BFloat16>, Fp32Form, Fp16Form>;
TYPED_TEST_SUITE(HostAdamW, Forms);

TYPED_TEST(HostAdamW, IsTheFormulasBitForBit) {
  for (const std::int64_t count : {1, 3, 15, 16, 64, 100, 1000, 200'000}) {
    const Numbers numbers(count);
    const auto gradient = rounded<typename TypeParam::Gradient>(numbers.g);
    for (const Decay decay : {Decay::applied, Decay::none}) {
      const AdamWRun run{.block = 4, .begin = 64 * 77, .count = count, .decay = decay};
      TypeParam expected(numbers);
      reference_update(kSettings, run, gradient, expected);
      with_every_target([&] {
        TypeParam form(numbers);
        host_adamw(ThreadPool(1), kSettings, run, source_of(form.at(0)), gradient.data(), form.at(0));
        form.expect_equals(expected);
      });
    }
  }
}

TYPED_TEST(HostAdamW, CutsThreadsAndPlacesChangeNothing) {
  const std::int64_t count = 300'001, cut = 70'007;
  const Numbers numbers(count);
  const auto gradient = rounded<typename TypeParam::Gradient>(numbers.g);
  const AdamWRun run{.block = 4, .begin = 640, .count = count};
  TypeParam whole(numbers);
  host_adamw(ThreadPool(1), kSettings, run, source_of(whole.at(0)), gradient.data(), whole.at(0));

  TypeParam parts(numbers);
  const ThreadPool pool(3);
  host_adamw(pool, kSettings, {.block = 4, .begin = 640, .count = cut}, source_of(parts.at(0)), gradient.data(), parts.at(0));
  host_adamw(pool, kSettings, {.block = 4, .begin = 640 + cut, .count = count - cut}, source_of(parts.at(cut)),
             gradient.data() + cut, parts.at(cut));
  parts.expect_equals(whole);

  TypeParam source(numbers), target((Numbers(count)));
  host_adamw(pool, kSettings, run, source_of(source.at(0)), gradient.data(), target.at(0));
  target.expect_equals(whole);
  source.expect_equals(TypeParam(numbers));
}

// Random keys change inside a run, and blocks may have more than 2^32 elements.
TYPED_TEST(HostAdamW, IndicesBeyondOneKeyAndBeyond32Bits) {
  const std::int64_t count = 100;
  const Numbers numbers(count);
  const auto gradient = rounded<typename TypeParam::Gradient>(numbers.g);
  for (const std::int64_t boundary : {static_cast<std::int64_t>(kRandomKeyIndices), std::int64_t{1} << 32}) {
    const AdamWRun run{.block = 4, .begin = boundary - 50, .count = count};
    TypeParam form(numbers), expected(numbers);
    reference_update(kSettings, run, gradient, expected);
    host_adamw(ThreadPool(2), kSettings, run, source_of(form.at(0)), gradient.data(), form.at(0));
    form.expect_equals(expected);
  }
}

TYPED_TEST(HostAdamW, NothingOutsideTheRunIsTouched) {
  const Numbers numbers(64);
  const auto gradient = rounded<typename TypeParam::Gradient>(numbers.g);
  TypeParam form(numbers), expected(numbers);
  host_adamw(ThreadPool(1), kSettings, {.count = 0}, source_of(form.at(0)), gradient.data(), form.at(0));
  form.expect_equals(expected);
  host_adamw(ThreadPool(1), kSettings, {.count = 19}, source_of(form.at(0)), gradient.data(), form.at(0));
  for (std::size_t i = 19; i < 64; ++i) {
    ASSERT_EQ(form.weight(i), expected.weight(i));
    ASSERT_EQ(to_float(form.m[i]), to_float(expected.m[i]));
    ASSERT_EQ(to_float(form.v[i]), to_float(expected.v[i]));
  }
}

// Compared with the formulas in double: a few roundings of fp32 in the step, one in the weight.
TEST(HostAdamW, IsCloseToDouble) {
  const std::int64_t count = 10'000;
  Numbers numbers(count);
  Fp32Form form(numbers);
  std::vector<double> w(numbers.w.begin(), numbers.w.end()), m(numbers.m.begin(), numbers.m.end()),
      v(numbers.v.begin(), numbers.v.end());
  const double epsilon = std::numeric_limits<float>::epsilon();
  for (int t = 1; t <= 10; ++t) {
    AdamWSettings s = kSettings;
    s.step = t;
    host_adamw(ThreadPool(1), s, {.count = count}, source_of(form.at(0)), numbers.g.data(), form.at(0));
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
      const double g = static_cast<double>(numbers.g[i]) * s.gradient_scale;
      m[i] = s.beta1 * m[i] + (1 - s.beta1) * g;
      v[i] = s.beta2 * v[i] + (1 - s.beta2) * g * g;
      const double step = s.lr * (m[i] / (1 - std::pow(s.beta1, t))) / (std::sqrt(v[i] / (1 - std::pow(s.beta2, t))) + s.epsilon);
      w[i] = w[i] * (1 - s.lr * s.weight_decay) - step;
      // m cancels where the gradient turns against it, so the step's error is measured by the terms that it consists of.
      const double scale = std::abs(step) + s.lr * (std::abs(numbers.m[i]) + std::abs(g)) /
                                                (std::sqrt(v[i] / (1 - std::pow(s.beta2, t))) + s.epsilon) / (1 - s.beta1);
      ASSERT_NEAR(form.w[i], w[i], t * epsilon * (2 * std::abs(w[i]) + 1e-3 + 16 * scale)) << "element " << i << ", step " << t;
    }
  }
}

// A master is rounded as finite_float16() has it, on every target: normal, subnormal, halfway, too large, infinite and NaN.
TEST(HostAdamWFp16, RoundsEveryMaster) {
  std::vector<float> masters = {0.0f,
                                -0.0f,
                                65504.0f,
                                65519.9f,
                                65520.0f,
                                -65520.0f,
                                1e9f,
                                -3e38f,
                                0x1p-24f,
                                0x1p-25f,
                                0x1.8p-25f,
                                0x1p-14f,
                                0x1.ffcp-15f,
                                0x1.ffep-15f,
                                1e-40f,
                                std::numeric_limits<float>::infinity(),
                                -std::numeric_limits<float>::infinity(),
                                std::numeric_limits<float>::quiet_NaN()};
  for (std::uint32_t i = 0; i < 0x8000; ++i) {  // each half, and numbers about halfway to the next
    const float half = Float16{static_cast<std::uint16_t>(i)}.to_float();
    for (const std::uint32_t bits : {0u, 0xfffu, 0x1000u, 0x1001u})
      masters.push_back(std::bit_cast<float>(std::bit_cast<std::uint32_t>(half) + bits));
  }
  const std::size_t count = masters.size();
  const std::vector<float> none(count, 0.0f), ones(count, 1.0f);
  with_every_target([&] {
    std::vector<float> master = masters, m = none, v = ones;
    std::vector<Float16> weight(count);
    const Fp16State state{weight.data(), master.data(), m.data(), v.data()};
    host_adamw(ThreadPool(1), {.step = 1}, {.count = static_cast<std::int64_t>(count)}, source_of(state), none.data(), state);
    for (std::size_t i = 0; i < count; ++i) {
      const Float16 expected = finite_float16(masters[i]);
      if (std::isnan(masters[i])) {
        ASSERT_TRUE(std::isnan(weight[i].to_float()));
      } else {
        const int compared = masters[i] == 0 ? 0x7fff : 0xffff;  // a zero may have either sign
        ASSERT_EQ(weight[i].bits & compared, expected.bits & compared) << masters[i];
        ASSERT_EQ(std::isinf(weight[i].to_float()), std::isinf(masters[i])) << masters[i];
      }
    }
  });
}

// Steps that applied nothing are no steps of AdamW's own.
TEST(HostAdamWFp16, SkippedStepsDoNotCount) {
  const std::int64_t count = 100;
  const Numbers numbers(count);
  const auto after = [&](std::int64_t step, std::int64_t skipped) {
    AdamWSettings settings = kSettings;
    settings.step = step, settings.skipped = skipped;
    Fp16Form form(numbers);
    host_adamw(ThreadPool(1), settings, {.count = count}, source_of(form.at(0)), numbers.g.data(), form.at(0));
    return form.master;
  };
  EXPECT_EQ(after(5, 3), after(2, 0));
  EXPECT_NE(after(5, 3), after(5, 0));
}

// --- stochastic rounding --------------------------------------------------------------------------------------------------

// With no gradient and beta 1 nearly 1, only rounding changes m: its mean over many elements must be the number itself.
TEST(HostAdamWCompact, RoundingIsRightOnAverage) {
  const std::int64_t count = 1 << 18;
  const float value = 1.0f + 0x1p-7f;  // times 0.9: between two bf16 numbers, step 2^-8
  std::vector<BFloat16> high(count), m(count, BFloat16::from_float(value)), v(count, BFloat16::from_float(value)), g(count);
  std::vector<std::int16_t> low(count);
  const CompactState state{high.data(), low.data(), m.data(), v.data()};
  host_adamw(ThreadPool(1), {.step = 9, .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.99, .seed = 1}, {.count = count}, source_of(state),
             g.data(), state);
  for (const auto& [moments, beta, step] : {std::tuple(&m, 0.9f, 0x1p-8), std::tuple(&v, 0.99f, 0x1p-8)}) {
    const double exact = static_cast<double>(beta * value);
    double sum = 0;
    for (const BFloat16 x : *moments) {
      ASSERT_LT(std::abs(x.to_float() - exact), step);
      sum += x.to_float();
    }
    // A rounded number deviates by at most half a step; six deviations of the mean.
    EXPECT_NEAR(sum / count, exact, 6 * 0.5 * step / std::sqrt(static_cast<double>(count)));
  }
}

TEST(HostAdamWCompact, DrawsDependOnSeedStepAndBlock) {
  const std::int64_t count = 4096;
  const Numbers numbers(count);
  const auto gradient = rounded<BFloat16>(numbers.g);
  const auto moments = [&](std::uint64_t seed, std::uint64_t block) {
    SplitForm<BFloat16, BFloat16> form(numbers);
    AdamWSettings s = kSettings;
    s.seed = seed;
    host_adamw(ThreadPool(1), s, {.block = block, .count = count}, source_of(form.at(0)), gradient.data(), form.at(0));
    return form.m;
  };
  EXPECT_EQ(moments(1, 2), moments(1, 2));
  EXPECT_NE(moments(1, 2), moments(2, 2));
  EXPECT_NE(moments(1, 2), moments(1, 3));
}

// The same for one element over many steps: a change that is too small to move a bf16 moment at once moves it in the end.
TEST(HostAdamWCompact, RoundingIsRightOverSteps) {
  const std::int64_t count = 77, steps = 1 << 12;
  const BFloat16 one = BFloat16::from_float(1.0f);
  std::vector<BFloat16> high(count), m(count), v(count), g(count);
  std::vector<std::int16_t> low(count);
  std::vector<double> sum_m(count), sum_v(count);
  const CompactState state{high.data(), low.data(), m.data(), v.data()};
  for (std::int64_t step = 1; step <= steps; ++step) {
    std::ranges::fill(m, one);
    std::ranges::fill(v, one);
    host_adamw(ThreadPool(1), {.step = step, .beta1 = 0.998, .beta2 = 0.9999, .seed = 1}, {.count = count}, source_of(state),
               g.data(), state);
    for (std::size_t i = 0; i < m.size(); ++i) sum_m[i] += m[i].to_float(), sum_v[i] += v[i].to_float();
  }
  for (std::size_t i = 0; i < m.size(); ++i) {
    for (const auto& [sum, beta] : {std::pair(sum_m[i], 0.998), std::pair(sum_v[i], 0.9999)}) {
      const double up = (1 - beta) / 0x1p-8;  // the chance of the lower neighbour of 1
      EXPECT_NEAR(sum / steps, beta, 6 * 0x1p-8 * std::sqrt(up * (1 - up) / steps)) << i;
    }
  }
}

TEST(HostAdamWCompact, InfinityStaysInfinity) {
  const std::int64_t count = 77;  // whole vectors and a rest, on every target
  const float infinity = std::numeric_limits<float>::infinity();
  with_every_target([&] {
    std::vector<BFloat16> high(count), m(count), v(count), g(count, BFloat16::from_float(infinity));
    std::vector<std::int16_t> low(count);
    const CompactState state{high.data(), low.data(), m.data(), v.data()};
    host_adamw(ThreadPool(1), kSettings, {.count = count}, source_of(state), g.data(), state);
    for (std::size_t i = 0; i < m.size(); ++i) {
      EXPECT_EQ(m[i].to_float(), infinity);
      EXPECT_EQ(v[i].to_float(), infinity);
      EXPECT_TRUE(std::isnan(join_master(high[i], low[i])));
    }
  });
}

// No draw may carry a NaN of any payload into infinity or past it, to zero.
TEST(HostAdamWCompact, EveryNaNStaysOne) {
  std::vector<BFloat16> nans;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const BFloat16 value{static_cast<std::uint16_t>(bits)};
    if (std::isnan(value.to_float())) nans.push_back(value);
  }
  ASSERT_EQ(nans.size(), 2u * 127);
  const std::size_t count = nans.size() + 7;  // whole vectors and a rest, on every target
  nans.insert(nans.end(), 7, BFloat16{0x7fff});
  enum class From { m, v, gradient };
  with_every_target([&] {
    for (const From from : {From::m, From::v, From::gradient}) {
      for (std::int64_t step = 1; step <= 64; ++step) {
        const std::vector<BFloat16> numbers(count, BFloat16::from_float(0.5f));
        std::vector<BFloat16> high(count), m = from == From::m ? nans : numbers, v = from == From::v ? nans : numbers;
        const std::vector<BFloat16>& g = from == From::gradient ? nans : numbers;
        std::vector<std::int16_t> low(count);
        const CompactState state{high.data(), low.data(), m.data(), v.data()};
        AdamWSettings s = kSettings;
        s.step = step;
        host_adamw(ThreadPool(1), s, {.count = static_cast<std::int64_t>(count)}, source_of(state), g.data(), state);
        for (std::size_t i = 0; i < count; ++i) {
          ASSERT_EQ(std::isnan(m[i].to_float()), from != From::v) << i;
          ASSERT_EQ(std::isnan(v[i].to_float()), from != From::m) << i;
          ASSERT_TRUE(std::isnan(join_master(high[i], low[i]))) << i;
        }
      }
    }
  });
}

}  // namespace
}  // namespace spillway
