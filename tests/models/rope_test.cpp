#include "tests/models/kernel_testing.h"

namespace spillway::testing {
namespace {

using ops::RopeShape;
using ops::Store;

struct Table {
  // `document`: rows of each document in a sequence; 0: a sequence is one.
  Table(const RopeShape& shape, std::int64_t document) {
    for (std::int64_t row = 0; document > 0 && row < shape.n; ++row)
      first_key.push_back(static_cast<std::int32_t>(row % shape.sequence / document * document));
    for (std::int64_t t = 0; t < shape.sequence; ++t) {
      for (std::int64_t j = 0; j < shape.dimension / 2; ++j) {
        const double angle =
            static_cast<double>(t) * std::pow(10000.0, -2.0 * static_cast<double>(j) / static_cast<double>(shape.dimension));
        cosine.push_back(static_cast<float>(std::cos(angle)));
        sine.push_back(static_cast<float>(std::sin(angle)));
        q_cosine.push_back(2 * cosine.back()), q_sine.push_back(2 * sine.back());
      }
    }
  }
  // Queries turn by the same angles, times 2: a factor, as one that grows with the position is.
  ops::RopeTable view() const {
    return {{cosine.data(), sine.data()}, {q_cosine.data(), q_sine.data()}, first_key.empty() ? nullptr : first_key.data()};
  }
  std::int64_t position(const RopeShape& shape, std::int64_t row) const {
    return row % shape.sequence - (first_key.empty() ? 0 : first_key[static_cast<std::size_t>(row)]);
  }
  std::vector<float> cosine, sine, q_cosine, q_sine;
  std::vector<std::int32_t> first_key;  // or none
};

// One head at one position: y = R(w * x * rstd), where w includes its offset, and the gradient back through it. Without weights
// there is no norm.
struct Head {
  std::vector<double> y, dx, dweight;
};
Head reference(const double* x, const double* dy, const std::vector<double>& w, const float* cosine, const float* sine,
               std::int64_t D, double epsilon) {
  const auto half = static_cast<std::size_t>(D / 2), full = static_cast<std::size_t>(D);
  Head head;
  double squares = 0;
  for (std::size_t i = 0; i < full; ++i) squares += x[i] * x[i] / static_cast<double>(D);
  const double rstd = w.empty() ? 1.0 : 1 / std::sqrt(squares + epsilon);
  std::vector<double> u(full), v(full), g(full);
  for (std::size_t i = 0; i < full; ++i) {
    u[i] = x[i] * rstd;
    v[i] = w.empty() ? u[i] : w[i] * u[i];
  }
  head.y.resize(full);
  double dot = 0;
  for (std::size_t j = 0; j < half; ++j) {
    const double c = static_cast<double>(cosine[j]), s = static_cast<double>(sine[j]);
    head.y[j] = v[j] * c - v[j + half] * s;
    head.y[j + half] = v[j + half] * c + v[j] * s;
    g[j] = dy[j] * c + dy[j + half] * s;
    g[j + half] = dy[j + half] * c - dy[j] * s;
  }
  for (std::size_t i = 0; i < full; ++i) {
    head.dweight.push_back(g[i] * u[i]);
    if (!w.empty()) dot += g[i] * w[i] * u[i] / static_cast<double>(D);
  }
  for (std::size_t i = 0; i < full; ++i) head.dx.push_back(w.empty() ? g[i] : rstd * (g[i] * w[i] - u[i] * dot));
  return head;
}

template <typename E>
void check(const RopeShape& shape, bool normed, std::int64_t document = 0) {
  SCOPED_TRACE(::testing::Message() << shape.n << " rows, D " << shape.dimension << (normed ? ", normed" : ""));
  const std::int64_t D = shape.dimension, all = shape.heads + 2 * shape.kv_heads, rotated = shape.heads + shape.kv_heads;
  const Table table(shape, document);
  const auto qkv = random_vector<E>(shape.n * all * D, 1), gradient = random_vector<E>(shape.n * all * D, 2);
  const float mean = 1 - shape.offset;
  const auto q_weight = random_vector<E>(normed ? D : 0, 3, 0.2f, mean),
             k_weight = random_vector<E>(normed ? D : 0, 4, 0.2f, mean);
  const auto wide = widened(qkv), wide_gradient = widened(gradient);
  auto wide_q = widened(q_weight), wide_k = widened(k_weight);
  for (auto* weights : {&wide_q, &wide_k}) {
    for (double& weight : *weights) weight += static_cast<double>(shape.offset);
  }
  std::vector<double> expected(static_cast<std::size_t>(shape.n * rotated * D)), expected_gradient = wide_gradient;
  std::vector<double> dq(static_cast<std::size_t>(D), 0.5), dk(static_cast<std::size_t>(D), 0.5);
  for (std::int64_t row = 0; row < shape.n; ++row) {
    for (std::int64_t head = 0; head < rotated; ++head) {
      const std::int64_t at = (row * all + head) * D, angles = table.position(shape, row) * D / 2;
      const bool query = head < shape.heads;
      const auto &cosine = query ? table.q_cosine : table.cosine, &sine = query ? table.q_sine : table.sine;
      const Head one = reference(wide.data() + at, wide_gradient.data() + at, query ? wide_q : wide_k, cosine.data() + angles,
                                 sine.data() + angles, D, static_cast<double>(shape.epsilon));
      for (std::int64_t i = 0; i < D; ++i) {
        expected[static_cast<std::size_t>((row * rotated + head) * D + i)] = one.y[static_cast<std::size_t>(i)];
        expected_gradient[static_cast<std::size_t>(at + i)] = one.dx[static_cast<std::size_t>(i)];
        (query ? dq : dk)[static_cast<std::size_t>(i)] += one.dweight[static_cast<std::size_t>(i)];
      }
    }
  }
  const ops::HeadNorm<E> norm{normed ? q_weight.data() : nullptr, normed ? k_weight.data() : nullptr};
  std::vector<E> first_qk, first_gradient;
  std::vector<float> first_dq, first_dk;
  for (const int threads : kPools) {
    const ThreadPool pool(threads);
    std::vector<E> qk(expected.size()), d = gradient;
    std::vector<float> dq_weight(dq.size(), 0.5f), dk_weight(dk.size(), 0.5f);
    Scratch scratch(ops::rope_backward_scratch_bytes(shape));
    ops::rope_forward<E>(pool, shape, table.view(), norm, qkv.data(), qk.data());
    ops::rope_backward<E>(pool, shape, table.view(), norm, normed ? qkv.data() : nullptr, d.data(),
                          normed ? dq_weight.data() : nullptr, normed ? dk_weight.data() : nullptr, Store::add,
                          normed ? scratch.data() : nullptr);
    if (threads == 1) {
      first_qk = qk;
      first_gradient = d;
      first_dq = dq_weight;
      first_dk = dk_weight;
      const double row = epsilon_of<float>() * (16 + static_cast<double>(D) / 4);
      expect_close(qk, expected, epsilon_of<E>(), row, "qk");
      expect_close(d, expected_gradient, epsilon_of<E>(), row, "dqkv");
      const double terms = static_cast<double>(shape.n * shape.heads);
      if (normed) expect_close(dq_weight, dq, row, epsilon_of<float>() * (8 + 4 * terms), "dq_weight");
      if (normed) expect_close(dk_weight, dk, row, epsilon_of<float>() * (8 + 4 * terms), "dk_weight");
    }
    expect_same_bits(qk, first_qk, "qk");
    expect_same_bits(d, first_gradient, "dqkv");
    expect_same_bits(dq_weight, first_dq, "dq_weight");
    expect_same_bits(dk_weight, first_dk, "dk_weight");
  }
}

template <typename E>
class RopeTest : public KernelTest<E> {};
TYPED_TEST_SUITE(RopeTest, ComputeTypes);

TYPED_TEST(RopeTest, MatchesTheFormula) {
  for (const bool normed : {false, true}) {
    check<TypeParam>({.n = 1, .sequence = 1, .heads = 1, .kv_heads = 1, .dimension = 12, .epsilon = 1e-6f}, normed);
    check<TypeParam>({.n = 14, .sequence = 7, .heads = 4, .kv_heads = 2, .dimension = 24, .epsilon = 1e-6f}, normed);
    for (const float offset : {0.0f, 1.0f}) {
      check<TypeParam>({.n = 192, .sequence = 96, .heads = 3, .kv_heads = 1, .dimension = 64, .epsilon = 1e-6f, .offset = offset},
                       normed);
    }
    check<TypeParam>({.n = 70, .sequence = 70, .heads = 2, .kv_heads = 2, .dimension = 128, .epsilon = 1e-6f}, normed);
    check<TypeParam>({.n = 80, .sequence = 40, .heads = 2, .kv_heads = 1, .dimension = 32, .epsilon = 1e-6f}, normed, 11);
  }
}

}  // namespace
}  // namespace spillway::testing
