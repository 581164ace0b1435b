// Attention against plain loops in double: every head size, groups, windows, caps, caches, threads, instruction sets.
#include "models/cpu/attention/attention_ops.h"

#include <algorithm>
#include <limits>
#include <string>

#include "memory/base/error.h"
#include "tests/models/every_target.h"
#include "tests/models/kernel_testing.h"

namespace spillway::testing {
namespace {

using ops::AttentionPath;
using ops::AttentionShape;

template <typename E>
constexpr DType dtype_of() {
  return sizeof(E) == 2 ? DType::bfloat16 : DType::float32;
}
std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

// Lengths of documents, repeated as long as there are queries; each sequence begins with another one of them. Keys before the
// first query belong to its document.
using Documents = std::vector<std::int64_t>;
std::vector<std::int32_t> first_keys(const AttentionShape& s, const Documents& lengths) {
  std::vector<std::int32_t> first;
  for (std::int64_t b = 0; b < s.sequences && !lengths.empty(); ++b) {
    std::int64_t begin = 0, end = lengths[at(b % std::ssize(lengths))];
    for (std::int64_t t = 0, next = b + 1; t < s.queries; ++t) {
      if (t == end) begin = s.key_offset + t, end += lengths[at(next++ % std::ssize(lengths))];
      first.push_back(static_cast<std::int32_t>(begin));
    }
  }
  return first;
}

// Operands as rows of wider matrices: queries with a gap after them, keys and values side by side.
template <typename E>
struct Problem {
  static constexpr std::int64_t kGap = 5;

  Problem(const AttentionShape& of, float spread, const Documents& documents = {})
      : shape(of),
        q_stride(of.heads * of.head_dim + kGap),
        kv_stride(2 * of.kv_heads * of.head_dim),
        q(random_vector<E>(of.sequences * of.queries * q_stride, 1, spread)),
        kv(random_vector<E>(of.sequences * of.keys * kv_stride, 2, spread)),
        d_o(random_vector<E>(of.sequences * of.queries * q_stride, 3)),
        first_key(first_keys(of, documents)) {}

  ops::AttentionInputs<E> inputs() const {
    return {{q.data(), q_stride},
            {kv.data(), kv_stride},
            {kv.data() + shape.kv_heads * shape.head_dim, kv_stride},
            first_key.empty() ? nullptr : first_key.data()};
  }

  AttentionShape shape;
  std::int64_t q_stride, kv_stride;
  std::vector<E> q;                     // [B*Tq, Hq*D + gap]
  std::vector<E> kv;                    // [B*Tk, 2*Hkv*D]
  std::vector<E> d_o;                   // [B*Tq, Hq*D + gap]
  std::vector<std::int32_t> first_key;  // [B, Tq], or none
};

// Results in the layout of Problem. Beside each result is the sum of its terms' absolute values, from which the tolerance
// follows.
struct Reference {
  std::vector<double> o, o_size, lse, dq, dq_size, dkv, dkv_size;
  double largest_score = 0;  // before the cap
};

// The error of the cap's slope 1 - t^2 where it vanishes, because t is rounded, as a share of check()'s factor.
template <typename E>
double slope_error(const AttentionShape& s) {
  if (s.softcap == 0) return 0;
  return 4 * epsilon_of<float>() / (sizeof(E) == 2 ? 2 * epsilon_of<E>() : epsilon_of<E>() * static_cast<double>(s.head_dim + 8));
}

// A problem's operands as doubles.
struct Widened {
  std::vector<double> q, kv, d_o;
};

// Takes one query's row of one head: its output, its log-sum-exp, and what it adds to the gradients.
template <typename E>
void add_query(const Problem<E>& problem, const Widened& of, std::int64_t b, std::int64_t h, std::int64_t t, Reference& r) {
  const AttentionShape& s = problem.shape;
  const std::int64_t D = s.head_dim, values = s.kv_heads * D;
  const auto& [q, kv, d_o] = of;
  const std::int64_t position = s.key_offset + t;
  std::int64_t first = s.window == 0 ? 0 : std::max<std::int64_t>(0, position - s.window + 1);
  if (!problem.first_key.empty()) first = std::max<std::int64_t>(first, problem.first_key[at(b * s.queries + t)]);
  const std::int64_t row = (b * s.queries + t) * problem.q_stride + h * D;
  const auto key_row = [&](std::int64_t key) { return (b * s.keys + key) * problem.kv_stride + h / (s.heads / s.kv_heads) * D; };
  std::vector<double> p, slopes;  // slopes of the cap: 1 - tanh^2
  const auto cap = static_cast<double>(s.softcap);
  double largest = -std::numeric_limits<double>::infinity(), sum = 0;
  for (std::int64_t key = first; key <= position; ++key) {
    double score = 0;
    for (std::int64_t d = 0; d < D; ++d) score += q[at(row + d)] * kv[at(key_row(key) + d)];
    score *= static_cast<double>(s.scale);
    const double bent = cap == 0 ? 0 : std::tanh(score / cap);
    p.push_back(cap == 0 ? score : cap * bent);
    slopes.push_back(1 - bent * bent);
    largest = std::max(largest, p.back());
    r.largest_score = std::max(r.largest_score, std::abs(score));
  }
  for (double& weight : p) sum += weight = std::exp(weight - largest);
  r.lse[at((b * s.heads + h) * s.queries + t)] = largest + std::log(sum);
  double delta = 0, delta_size = 0;
  for (std::int64_t d = 0; d < D; ++d) {
    for (std::int64_t key = first; key <= position; ++key) {
      const double term = p[at(key - first)] / sum * kv[at(key_row(key) + values + d)];
      r.o[at(row + d)] += term;
      r.o_size[at(row + d)] += std::abs(term);
    }
    delta += r.o[at(row + d)] * d_o[at(row + d)];
    delta_size += r.o_size[at(row + d)] * std::abs(d_o[at(row + d)]);
  }
  for (std::int64_t key = first; key <= position; ++key) {
    const double weight = p[at(key - first)] / sum, scale = static_cast<double>(s.scale);
    double dp = 0, dp_size = 0;
    for (std::int64_t d = 0; d < D; ++d) {
      const double term = d_o[at(row + d)] * kv[at(key_row(key) + values + d)];
      dp += term;
      dp_size += std::abs(term);
      r.dkv[at(key_row(key) + values + d)] += weight * d_o[at(row + d)];
      r.dkv_size[at(key_row(key) + values + d)] += std::abs(weight * d_o[at(row + d)]);
    }
    const double slope = slopes[at(key - first)], slope_size = slope + slope_error<E>(s);
    const double ds = weight * (dp - delta) * scale * slope, ds_size = weight * (dp_size + delta_size) * scale * slope_size;
    for (std::int64_t d = 0; d < D; ++d) {
      r.dq[at(row + d)] += ds * kv[at(key_row(key) + d)];
      r.dq_size[at(row + d)] += ds_size * std::abs(kv[at(key_row(key) + d)]);
      r.dkv[at(key_row(key) + d)] += ds * q[at(row + d)];
      r.dkv_size[at(key_row(key) + d)] += ds_size * std::abs(q[at(row + d)]);
    }
  }
}

template <typename E>
Reference reference(const Problem<E>& problem) {
  const AttentionShape& s = problem.shape;
  const Widened of{widened(problem.q), widened(problem.kv), widened(problem.d_o)};
  Reference r;
  for (auto* out : {&r.o, &r.o_size, &r.dq, &r.dq_size}) out->resize(of.q.size());
  for (auto* out : {&r.dkv, &r.dkv_size}) out->resize(of.kv.size());
  r.lse.resize(at(s.sequences * s.heads * s.queries));
  for (std::int64_t b = 0; b < s.sequences; ++b) {
    for (std::int64_t h = 0; h < s.heads; ++h) {
      for (std::int64_t t = 0; t < s.queries; ++t) add_query(problem, of, b, h, t, r);
    }
  }
  return r;
}

template <typename E>
struct Results {
  std::vector<E> o, dq, dkv;
  std::vector<float> lse;
};

constexpr float kUntouched = 7.0f;

template <typename E>
Results<E> run(const Problem<E>& problem, int threads, AttentionPath path) {
  const AttentionShape& s = problem.shape;
  const ThreadPool pool(threads);
  Results<E> r;
  r.o.assign(problem.q.size(), from_float<E>(kUntouched));
  r.dq = r.o;
  r.dkv.assign(problem.kv.size(), from_float<E>(kUntouched));
  r.lse.assign(at(s.sequences * s.heads * s.queries), kUntouched);
  Scratch forward(ops::attention_forward_scratch_bytes(s, dtype_of<E>(), threads));
  ops::attention_forward<E>(pool, s, problem.inputs(), {r.o.data(), problem.q_stride}, r.lse.data(), forward.data(), path);
  Scratch backward(ops::attention_backward_scratch_bytes(s, dtype_of<E>(), threads));
  ops::attention_backward<E>(pool, s, problem.inputs(),
                             {{r.o.data(), problem.q_stride}, r.lse.data(), {problem.d_o.data(), problem.q_stride}},
                             {{r.dq.data(), problem.q_stride},
                              {r.dkv.data(), problem.kv_stride},
                              {r.dkv.data() + s.kv_heads * s.head_dim, problem.kv_stride}},
                             backward.data(), path);
  return r;
}

// Expects each |actual - expected| to be within factor * the sum of the terms' absolute values.
template <typename E>
void expect_within(const std::vector<E>& actual, const std::vector<double>& expected, const std::vector<double>& sizes,
                   double factor, std::int64_t stride, std::int64_t used, const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  double worst = 0;
  std::size_t where = 0;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    const double value = static_cast<double>(to_float(actual[i]));
    if (static_cast<std::int64_t>(i) % stride >= used) {
      ASSERT_EQ(value, static_cast<double>(kUntouched)) << what << ": written in a gap, element " << i;
      continue;
    }
    const double share = std::abs(value - expected[i]) / (factor * sizes[i] + 1e-30);
    if (!(share <= worst)) {
      worst = share;
      where = i;
    }
  }
  EXPECT_LE(worst, 1.0) << what << ": element " << where << " is " << to_float(actual[where]) << ", expected " << expected[where]
                        << ", terms " << sizes[where];
}

template <typename E>
void check(const AttentionShape& s, float spread = 1.0f, const Documents& documents = {}) {
  const Problem<E> problem(s, spread, documents);
  const Reference expected = reference(problem);
  const std::string name = std::to_string(s.sequences) + " x " + std::to_string(s.queries) + " of " + std::to_string(s.keys) +
                           " keys, heads " + std::to_string(s.heads) + "/" + std::to_string(s.kv_heads) + " of " +
                           std::to_string(s.head_dim) + ", window " + std::to_string(s.window) + ", cap " +
                           std::to_string(s.softcap) + (documents.empty() ? "" : ", documents");
  // Scores are sums of D products, weights carry the error of their exponent, outputs are sums of Tk products. In bf16 the
  // weights, the output that delta is made of, the score gradients and the result each round once, by at most half an epsilon.
  const double exponent = static_cast<double>(s.head_dim + 8) + 4 * expected.largest_score;
  const double rounding = sizeof(E) == 2 ? 2 * epsilon_of<E>() : 0.0, keys = static_cast<double>(s.keys);
  const double factor = epsilon_of<float>() * (exponent + keys) + rounding;
  // The slope of a cap turns a score's error into a relative one of up to 2 / cap times as much.
  const double bend = s.softcap == 0 ? 0 : 2 / static_cast<double>(s.softcap);
  const double gradient_factor = epsilon_of<float>() * (exponent * (1 + bend) + keys) + rounding;
  for (const AttentionPath path : {AttentionPath::instruction_set, AttentionPath::widened}) {
    const Results<E> actual = run(problem, 1, path);
    const std::int64_t used = s.heads * s.head_dim;
    expect_within(actual.o, expected.o, expected.o_size, factor, problem.q_stride, used, name + ": o");
    expect_within(actual.dq, expected.dq, expected.dq_size, gradient_factor, problem.q_stride, used, name + ": dq");
    expect_within(actual.dkv, expected.dkv, expected.dkv_size, gradient_factor, problem.kv_stride, problem.kv_stride,
                  name + ": dk, dv");
    expect_close(actual.lse, expected.lse, epsilon_of<float>() * exponent, epsilon_of<float>() * exponent,
                 (name + ": lse").c_str());
  }
}

AttentionShape training(std::int64_t B, std::int64_t T, std::int64_t heads, std::int64_t kv_heads, std::int64_t D,
                        std::int64_t window = 0) {
  return {.sequences = B,
          .queries = T,
          .keys = T,
          .heads = heads,
          .kv_heads = kv_heads,
          .head_dim = D,
          .window = window,
          .scale = 1.0f / std::sqrt(static_cast<float>(D))};
}

AttentionShape capped(AttentionShape shape, float cap) {
  shape.softcap = cap;
  return shape;
}

// One query, the last of `keys` positions.
AttentionShape decoding(std::int64_t keys, std::int64_t D, std::int64_t window) {
  AttentionShape shape = training(1, 1, 6, 2, D, window);
  shape.keys = keys;
  shape.key_offset = keys - 1;
  return shape;
}

template <typename E>
void check_decode(const AttentionShape& shape) {
  const Problem<E> problem(shape, 1.0f);
  const Reference expected = reference(problem);
  const std::int64_t D = shape.head_dim;
  const double factor =
      epsilon_of<float>() * (static_cast<double>(D + 8 + shape.keys) + 4 * expected.largest_score) + epsilon_of<E>();
  Scratch scratch(ops::attention_decode_scratch_bytes(shape));
  std::vector<E> first;
  for (const int threads : kPools) {
    std::vector<E> o(problem.q.size(), from_float<E>(kUntouched));
    std::vector<float> lse(expected.lse.size());
    ops::attention_decode(ThreadPool(threads), shape, problem.inputs(), o.data(), lse.data(), scratch.data());
    expect_close(lse, expected.lse, factor, factor, "lse");
    if (first.empty()) first = o;
    expect_same_bits(o, first, "o");
  }
  expect_within(first, expected.o, expected.o_size, factor, problem.q_stride, 6 * D, "o");
}

template <typename E>
using AttentionTest = KernelTest<E>;
TYPED_TEST_SUITE(AttentionTest, ComputeTypes);

TYPED_TEST(AttentionTest, SequencesAndHeadSizesOfEveryKind) {
  for (const std::int64_t T : {1, 2, 7, 33, 65, 130}) {
    for (const std::int64_t D : {12, 24, 64, 80}) check<TypeParam>(training(2, T, 2, 1, D));
  }
  for (const std::int64_t D : {1, 7, 16, 96, 128, 256}) check<TypeParam>(training(1, 37, 2, 2, D));
}

TYPED_TEST(AttentionTest, ManyBlocks) {
  check<TypeParam>(training(1, 300, 2, 1, 64));
  check<TypeParam>(training(1, 512, 1, 1, 16));
}

TYPED_TEST(AttentionTest, GroupsOfHeads) {
  check<TypeParam>(training(2, 65, 9, 3, 64));
  check<TypeParam>(training(1, 40, 6, 6, 24));
  check<TypeParam>(training(1, 40, 8, 1, 16));
  // More sequences than are in work at a time.
  check<TypeParam>(training(5, 20, 24, 8, 12));
  // Enough heads for one task each, over several key blocks.
  check<TypeParam>(training(8, 150, 2, 1, 16));
  check<TypeParam>(training(8, 150, 2, 1, 16, 30));
}

TYPED_TEST(AttentionTest, Windows) {
  for (const std::int64_t window : {1, 2, 15, 64, 127, 128, 129, 200, 1000}) check<TypeParam>(training(1, 290, 2, 1, 24, window));
}

TYPED_TEST(AttentionTest, DocumentsThatDoNotSeeEachOther) {
  with_every_target([] {
    for (const Documents& documents : {Documents{1}, {5, 66, 1, 40}, {128, 3, 200}, {1000}}) {
      check<TypeParam>(training(3, 290, 2, 1, 24), 1.0f, documents);
      check<TypeParam>(training(2, 149, 2, 2, 64, 30), 1.0f, documents);
      check<TypeParam>(capped(training(1, 37, 4, 2, 80), 1.0f), 1.0f, documents);
    }
    AttentionShape cached = training(2, 131, 4, 2, 24);
    cached.keys = 301;
    cached.key_offset = 170;
    check<TypeParam>(cached, 1.0f, {20, 31});
  });
}

// A document's bits do not depend on what stands beside it, as long as it begins where a block of keys does.
TYPED_TEST(AttentionTest, ADocumentIsAsAlone) {
  const AttentionShape both = training(1, 256, 2, 1, 64), one = training(1, 128, 2, 1, 64);
  const Problem<TypeParam> problem(both, 1.0f, {128});
  Problem<TypeParam> alone(one, 1.0f);
  std::copy(problem.q.begin() + 128 * problem.q_stride, problem.q.end(), alone.q.begin());
  std::copy(problem.kv.begin() + 128 * problem.kv_stride, problem.kv.end(), alone.kv.begin());
  const auto together = run(problem, 1, AttentionPath::instruction_set), apart = run(alone, 1, AttentionPath::instruction_set);
  for (std::int64_t t = 0; t < 128; ++t)
    for (std::int64_t i = 0; i < 2 * 64; ++i)
      ASSERT_EQ(to_float(together.o[at((128 + t) * problem.q_stride + i)]), to_float(apart.o[at(t * problem.q_stride + i)]))
          << t << ", " << i;
}

TYPED_TEST(AttentionTest, QueriesAfterKeysOfACache) {
  for (const std::int64_t keys : {1, 16, 33, 128, 200, 301}) {
    for (const std::int64_t queries : {1, 2, 5, 31, 130}) {
      if (queries > keys) continue;
      for (const std::int64_t window : {0, 20}) {
        AttentionShape shape = training(2, queries, 4, 2, 24, window);
        shape.keys = keys;
        shape.key_offset = keys - queries;
        check<TypeParam>(shape);
      }
    }
  }
}

TYPED_TEST(AttentionTest, OneQueryAfterKeysOfACache) {
  for (const std::int64_t keys : {1, 2, 5, 16, 511, 512, 513, 1300}) {
    for (const std::int64_t window : {0, 1, 20, 700}) {
      for (const std::int64_t D : {12, 64, 80}) check_decode<TypeParam>(decoding(keys, D, window));
    }
  }
}

// Caps that hardly bend the scores, that bend them, and that most of them reach.
TYPED_TEST(AttentionTest, CappedScores) {
  with_every_target([] {
    for (const float cap : {50.0f, 1.0f, 0.25f}) {
      for (const std::int64_t T : {1, 7, 130}) {
        for (const std::int64_t D : {12, 80}) check<TypeParam>(capped(training(2, T, 4, 2, D), cap));
      }
      check<TypeParam>(capped(training(1, 37, 2, 1, 256), cap));
      check<TypeParam>(capped(training(1, 290, 2, 1, 24, 30), cap));
      AttentionShape cached = training(2, 31, 4, 2, 24, 20);
      cached.keys = 200;
      cached.key_offset = 169;
      check<TypeParam>(capped(cached, cap));
    }
    check<TypeParam>(capped(training(1, 140, 2, 1, 64), 5.0f), 8.0f);
  });
}

TYPED_TEST(AttentionTest, OneQueryOfCappedScores) {
  with_every_target([] {
    for (const float cap : {50.0f, 1.0f, 0.25f}) {
      for (const std::int64_t keys : {1, 5, 513, 1300}) {
        for (const std::int64_t window : {0, 700}) check_decode<TypeParam>(capped(decoding(keys, 80, window), cap));
      }
    }
  });
}

TYPED_TEST(AttentionTest, CapsThatAreNone) {
  const ThreadPool pool(1);
  for (const float cap : {-1.0f, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    EXPECT_THROW(ops::attention_forward_scratch_bytes(capped(training(1, 4, 1, 1, 8), cap), DType::float32, 1), Error) << cap;
    const Problem<TypeParam> problem(capped(decoding(4, 8, 0), cap), 1.0f);
    EXPECT_THROW(ops::attention_decode<TypeParam>(pool, problem.shape, problem.inputs(), nullptr, nullptr, nullptr), Error)
        << cap;
  }
}

TYPED_TEST(AttentionTest, KeysThatNoQuerySees) {
  AttentionShape shape = training(1, 10, 2, 1, 16);
  shape.keys = 300;
  shape.key_offset = 3;
  check<TypeParam>(shape);
  shape.key_offset = 280;
  shape.window = 9;
  check<TypeParam>(shape);
}

TYPED_TEST(AttentionTest, LargeScores) {
  check<TypeParam>(training(1, 140, 2, 1, 64), 8.0f);
  const Problem<TypeParam> problem(training(1, 140, 2, 1, 64), 1e4f);
  for (const AttentionPath path : {AttentionPath::instruction_set, AttentionPath::widened}) {
    const Results<TypeParam> actual = run(problem, 1, path);
    for (const TypeParam value : actual.o) EXPECT_TRUE(std::isfinite(to_float(value)));
    for (const float value : actual.lse) EXPECT_TRUE(std::isfinite(value));
  }
}

TYPED_TEST(AttentionTest, NotANumberIsNotHidden) {
  for (const float cap : {0.0f, 5.0f}) {
    Problem<TypeParam> problem(capped(training(1, 40, 1, 1, 16), cap), 1.0f);
    problem.q[at(20 * problem.q_stride)] = from_float<TypeParam>(std::numeric_limits<float>::quiet_NaN());
    for (const AttentionPath path : {AttentionPath::instruction_set, AttentionPath::widened}) {
      const Results<TypeParam> actual = run(problem, 1, path);
      for (std::int64_t t = 0; t < 40; ++t) EXPECT_EQ(std::isnan(to_float(actual.o[at(t * problem.q_stride)])), t == 20) << t;
      EXPECT_TRUE(std::isnan(to_float(actual.dq[at(20 * problem.q_stride)])));
      EXPECT_TRUE(std::isnan(to_float(actual.dkv[0])));
    }
  }
}

TYPED_TEST(AttentionTest, BitsDoNotDependOnThreads) {
  for (const AttentionShape& shape : {training(3, 200, 6, 2, 64), training(1, 400, 3, 1, 24, 100), training(8, 140, 4, 2, 16),
                                      capped(training(1, 300, 6, 2, 24), 2.0f)}) {
    const Problem<TypeParam> problem(shape, 1.0f);
    for (const AttentionPath path : {AttentionPath::instruction_set, AttentionPath::widened}) {
      const Results<TypeParam> expected = run(problem, 1, path);
      for (const int threads : kPools) {
        const Results<TypeParam> actual = run(problem, threads, path);
        expect_same_bits(actual.o, expected.o, "o");
        expect_same_bits(actual.lse, expected.lse, "lse");
        expect_same_bits(actual.dq, expected.dq, "dq");
        expect_same_bits(actual.dkv, expected.dkv, "dk, dv");
      }
    }
  }
}

}  // namespace
}  // namespace spillway::testing
