// Attention on the emulated device beside loops in double precision: a call's operands, its meaning in plain loops, and the
// check.
// Not here: which calls (attention_test.cpp).
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <ostream>
#include <string>
#include <vector>

#include "memory/base/element.h"
#include "memory/base/error.h"
#include "memory/base/random.h"
#include "models/cuda/attention.cuh"
#include "tests/cuda/device.h"

namespace spillway::cuda {

inline constexpr std::int64_t kGap = 16;  // elements behind a row's last head, which nobody may touch

struct Case {
  ops::AttentionShape shape;
  DType type = DType::bfloat16;
  bool by_position = false;
  std::vector<std::int32_t> documents = {};  // lengths, repeated as long as there are queries

  friend std::ostream& operator<<(std::ostream& out, const Case& c) {
    const ops::AttentionShape& s = c.shape;
    return out << name_of(c.type) << " B " << s.sequences << " Tq " << s.queries << " Tk " << s.keys << " Hq " << s.heads
               << " Hkv " << s.kv_heads << " D " << s.head_dim << " offset " << s.key_offset << " window " << s.window << " cap "
               << s.softcap << (c.by_position ? " by position" : "") << (c.documents.empty() ? "" : " documents");
  }
};

// Rows [B * T, heads * D + kGap] of the type, as the device has them.
class Matrix {
 public:
  Matrix(DType type, std::int64_t rows, std::int64_t columns)
      : type_(type),
        stride_(columns + kGap),
        elements_(rows * stride_),
        bytes_(static_cast<std::size_t>(elements_ * size_of(type))) {}
  AttentionRows rows() const { return {bytes_.data(), stride_}; }
  double at(std::int64_t row, std::int64_t column) const { return element(bytes_.data(), type_, row * stride_ + column); }
  void set(std::int64_t row, std::int64_t column, double x) const {
    set_element(bytes_.data(), type_, row * stride_ + column, x);
  }
  std::span<const std::byte> bytes() const { return bytes_.all(); }
  // True if the gaps still have the bits of NaN with which the device's memory begins.
  bool gaps_are_untouched() const {
    for (std::int64_t i = 0; i < elements_; ++i) {
      const auto at =
          bytes_.all().subspan(static_cast<std::size_t>(i * size_of(type_)), static_cast<std::size_t>(size_of(type_)));
      if (i % stride_ >= stride_ - kGap && std::ranges::any_of(at, [](std::byte x) { return x != std::byte{0xff}; }))
        return false;
    }
    return true;
  }

 private:
  DType type_;
  std::int64_t stride_, elements_;
  device::Buffer<std::byte> bytes_;
};

struct Problem {
  Case of;
  Matrix q, k, v, o, d_o, dq, dk, dv;
  device::Buffer<float> lse, delta;
  device::Buffer<std::int64_t> position{1};
  device::Buffer<std::int32_t> first_key;

  explicit Problem(const Case& c)
      : of(c),
        q(c.type, query_rows(), query_columns()),
        k(c.type, key_rows(), key_columns()),
        v(c.type, key_rows(), key_columns()),
        o(c.type, query_rows(), query_columns()),
        d_o(c.type, query_rows(), query_columns()),
        dq(c.type, query_rows(), query_columns()),
        dk(c.type, key_rows(), key_columns()),
        dv(c.type, key_rows(), key_columns()),
        lse(static_cast<std::size_t>(query_rows() * c.shape.heads)),
        delta(static_cast<std::size_t>(query_rows() * c.shape.heads)),
        first_key(static_cast<std::size_t>(query_rows())) {
    std::uint64_t seed = 17;
    const auto fill = [&seed](const Matrix& matrix, std::int64_t rows, std::int64_t columns, double size) {
      for (std::int64_t row = 0; row < rows; ++row)
        for (std::int64_t i = 0; i < columns; ++i)
          matrix.set(row, i, size * (static_cast<double>(mix64(seed++) >> 40) / (1 << 23) - 1));
    };
    fill(q, query_rows(), query_columns(), 2), fill(d_o, query_rows(), query_columns(), 1);
    // There is nothing yet behind the last key that a query at a position sees.
    const std::int64_t rows = c.by_position ? c.shape.key_offset + c.shape.queries : key_rows();
    fill(k, rows, key_columns(), 2), fill(v, rows, key_columns(), 1);
    *position.data() = c.shape.key_offset;
    for (std::int64_t b = 0; b < c.shape.sequences; ++b) set_documents(b);
  }
  void set_documents(std::int64_t b) {
    const std::int64_t T = of.shape.queries;
    std::int64_t begin = 0;  // the document's first query; keys before the first query belong to the first document
    for (std::size_t i = static_cast<std::size_t>(b); begin < T && !of.documents.empty(); ++i) {
      const std::int64_t end = std::min<std::int64_t>(T, begin + of.documents[i % of.documents.size()]);
      for (std::int64_t t = begin; t < end; ++t)
        first_key.data()[b * T + t] = static_cast<std::int32_t>(begin == 0 ? 0 : of.shape.key_offset + begin);
      begin = end;
    }
  }
  std::int64_t query_rows() const { return of.shape.sequences * of.shape.queries; }
  std::int64_t key_rows() const { return of.shape.sequences * of.shape.keys; }
  std::int64_t query_columns() const { return of.shape.heads * of.shape.head_dim; }
  std::int64_t key_columns() const { return of.shape.kv_heads * of.shape.head_dim; }

  AttentionArguments arguments() const {
    AttentionArguments a{.type = of.type, .shape = of.shape, .q = q.rows(), .k = k.rows(), .v = v.rows(), .o = o.rows()};
    a.lse = lse.data(), a.delta = delta.data();
    a.d_o = d_o.rows(), a.dq = dq.rows(), a.dk = dk.rows(), a.dv = dv.rows();
    if (of.by_position) a.position = position.data(), a.shape.key_offset = 0;
    if (!of.documents.empty()) a.first_key = first_key.data();
    return a;
  }
};

// --- the meaning ----------------------------------------------------------------------------------------------------------

// A sum, and the sum of its terms' sizes, with which rounding errors grow.
struct Sum {
  double value = 0, size = 0;
  void add(double x) { value += x, size += std::abs(x); }
  void add(double x, double its_size) { value += x, size += its_size; }
};

struct Expected {
  std::vector<Sum> o, dq, dk, dv;
  std::vector<double> lse;
};

// One query's weights, for the keys from `first` on.
struct Weights {
  std::int64_t first = 0;
  std::vector<double> p, slope;
  double log_sum = 0;
};

inline Weights weights_of(const Problem& problem, std::int64_t b, std::int64_t head, std::int64_t t) {
  const ops::AttentionShape& s = problem.of.shape;
  const std::int64_t D = s.head_dim, kv_head = head / (s.heads / s.kv_heads), last = s.key_offset + t;
  Weights w;
  w.first = s.window > 0 ? std::max<std::int64_t>(0, last - s.window + 1) : 0;
  if (!problem.of.documents.empty()) w.first = std::max<std::int64_t>(w.first, problem.first_key.data()[b * s.queries + t]);
  double sum = 0;
  for (std::int64_t j = w.first; j <= last; ++j) {
    double score = 0;
    for (std::int64_t d = 0; d < D; ++d)
      score += problem.q.at(b * s.queries + t, head * D + d) * problem.k.at(b * s.keys + j, kv_head * D + d);
    score *= static_cast<double>(s.scale);
    const double cap = static_cast<double>(s.softcap), bent = cap > 0 ? std::tanh(score / cap) : 0;
    w.slope.push_back(1 - bent * bent);
    w.p.push_back(std::exp(cap > 0 ? cap * bent : score));
    sum += w.p.back();
  }
  for (double& p : w.p) p /= sum;
  w.log_sum = std::log(sum);
  return w;
}

inline Expected expected_of(const Problem& problem, bool backward) {
  const ops::AttentionShape& s = problem.of.shape;
  const std::int64_t D = s.head_dim;
  Expected e;
  e.lse.resize(problem.lse.all().size());
  e.o.resize(static_cast<std::size_t>(problem.query_rows() * problem.query_columns())), e.dq.resize(e.o.size());
  e.dk.resize(static_cast<std::size_t>(problem.key_rows() * problem.key_columns())), e.dv.resize(e.dk.size());
  for (std::int64_t row = 0; row < problem.query_rows(); ++row) {
    for (std::int64_t head = 0; head < s.heads; ++head) {
      const std::int64_t b = row / s.queries, kv_head = head / (s.heads / s.kv_heads);
      const Weights w = weights_of(problem, b, head, row % s.queries);
      const auto q_at = [&](std::int64_t d) { return static_cast<std::size_t>((row * s.heads + head) * D + d); };
      e.lse[static_cast<std::size_t>((b * s.heads + head) * s.queries + row % s.queries)] = w.log_sum;
      std::vector<Sum> dp(w.p.size());
      Sum mean;
      for (std::size_t i = 0; i < w.p.size(); ++i) {
        for (std::int64_t d = 0; d < D; ++d) {
          const double v = problem.v.at(b * s.keys + w.first + static_cast<std::int64_t>(i), kv_head * D + d);
          e.o[q_at(d)].add(w.p[i] * v);
          dp[i].add(problem.d_o.at(row, head * D + d) * v);
        }
        mean.add(w.p[i] * dp[i].value, w.p[i] * dp[i].size);
      }
      for (std::size_t i = 0; i < w.p.size() && backward; ++i) {
        const std::int64_t key_row = b * s.keys + w.first + static_cast<std::int64_t>(i);
        const double factor = w.p[i] * w.slope[i] * static_cast<double>(s.scale), ds = factor * (dp[i].value - mean.value);
        const double size = factor * (dp[i].size + mean.size);
        for (std::int64_t d = 0; d < D; ++d) {
          const auto k_at = static_cast<std::size_t>((key_row * s.kv_heads + kv_head) * D + d);
          const double k = problem.k.at(key_row, kv_head * D + d), q = problem.q.at(row, head * D + d);
          e.dq[q_at(d)].add(ds * k, size * std::abs(k));
          e.dk[k_at].add(ds * q, size * std::abs(q));
          e.dv[k_at].add(w.p[i] * problem.d_o.at(row, head * D + d));
        }
      }
    }
  }
  return e;
}

// The largest error, in units of what rounding may do to a sum of such terms, and the error of all values together relative to
// their size. The latter tells a key too many or too few from rounding.
struct Errors {
  double largest = 0, together = 0;
};
inline Errors errors_of(const Matrix& got, const std::vector<Sum>& expected, std::int64_t columns, double unit) {
  Errors errors;
  double squares = 0, of_values = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const auto row = static_cast<std::int64_t>(i) / columns, column = static_cast<std::int64_t>(i) % columns;
    const double error = got.at(row, column) - expected[i].value, size = std::abs(error) / (unit * expected[i].size + 1e-7);
    errors.largest = std::isnan(error) ? std::numeric_limits<double>::infinity() : std::max(errors.largest, size);
    squares += error * error;
    // Terms that cancel leave their rounding behind.
    of_values += expected[i].value * expected[i].value + 1e-3 * expected[i].size * expected[i].size;
  }
  errors.together = std::sqrt(squares / (of_values + 1e-12)) / unit;
  return errors;
}

// The unit of rounding of a sum's terms: weights and gradients of scores are rounded before they are multiplied, results after
// that.
inline double unit_of(const Case& c) {
  return std::ldexp(1.0, c.type == DType::float32 ? -20 : c.type == DType::bfloat16 ? -7 : -10);
}

inline void check_run(const Problem& problem, const Expected& expected, const device::Options& options) {
  const Case& c = problem.of;
  device::Queue queue(options);
  attend(queue, problem.arguments());
  if (!c.by_position) attend_backward(queue, problem.arguments());
  queue.synchronize();
  const auto expect_near = [&](const char* what, const Matrix& got, const std::vector<Sum>& sums, std::int64_t columns) {
    SCOPED_TRACE(what);
    const Errors errors = errors_of(got, sums, columns, unit_of(c));
    EXPECT_LT(errors.largest, 1);
    EXPECT_LT(errors.together, 0.5);
    EXPECT_TRUE(got.gaps_are_untouched());
  };
  expect_near("o", problem.o, expected.o, problem.query_columns());
  for (std::size_t i = 0; i < expected.lse.size(); ++i)
    ASSERT_NEAR(problem.lse.data()[i], expected.lse[i], 2e-5 * (1 + std::abs(expected.lse[i]))) << i;
  EXPECT_EQ(queue.counts().bank_conflicts, 0);
  if (c.by_position) return;
  expect_near("dq", problem.dq, expected.dq, problem.query_columns());
  expect_near("dk", problem.dk, expected.dk, problem.key_columns());
  expect_near("dv", problem.dv, expected.dv, problem.key_columns());
}

inline const char* on_hopper([[maybe_unused]] const device::Options& options) {
#if !defined(__CUDACC__)
  if (options.chip == simt::Chip::sm_90) return " on Hopper";
#endif
  return "";
}

// On the emulated device, a case for which Hopper has kernels of its own runs there, too.
inline std::vector<device::Options> devices_of(const Case& c, const device::Options& options) {
  std::vector<device::Options> all{options};
#if !defined(__CUDACC__)
  const bool has_both = c.type != DType::float32 && (c.shape.head_dim == 64 || c.shape.head_dim == 128);
  if (has_both && options.chip == device::Options().chip) all.push_back(options), all.back().chip = simt::Chip::sm_90;
#endif
  return all;
}

inline void check(const Case& c, const device::Options& options = {}) {
  const Expected expected = expected_of(Problem(c), !c.by_position);
  for (const device::Options& device : devices_of(c, options)) {
    SCOPED_TRACE(testing::PrintToString(c) + on_hopper(device));
    check_run(Problem(c), expected, device);
  }
}

inline ops::AttentionShape shape_of(std::int64_t T, std::int64_t heads, std::int64_t kv_heads, std::int64_t D) {
  return {.sequences = 1,
          .queries = T,
          .keys = T,
          .heads = heads,
          .kv_heads = kv_heads,
          .head_dim = D,
          .scale = 1.0f / std::sqrt(static_cast<float>(D))};
}

}  // namespace spillway::cuda
