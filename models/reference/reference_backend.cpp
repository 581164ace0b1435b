#include "models/reference/reference_backend.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "memory/base/error.h"
#include "models/reference/numbers.h"
#include "models/reference/reference_experts.h"

namespace spillway {
namespace {

using namespace kernels;

class Reference {
 public:
  explicit Reference(const PassMemory& memory) : memory_(memory) {}

  void operator()(const Product& k) const {
    const ops::GemmSpec& s = k.spec;
    const Numbers a = at(k.a, s.input), b = at(k.b, s.input), c = at(k.c, s.output), bias = at(k.bias, s.input),
                  residual = at(k.residual, s.input);
    if (!c) return;
    const bool adds = k.sum == Sum::add || (k.sum == Sum::first_writes && !memory_.first_micro_batch);
    for (std::int64_t i = 0; i < s.m; ++i) {
      for (std::int64_t j = 0; j < s.n; ++j) {
        double sum = 0;
        for (std::int64_t l = 0; l < s.k; ++l) {
          sum += a[s.transpose_a == ops::Transpose::yes ? l * s.lda + i : i * s.lda + l] *
                 b[s.transpose_b == ops::Transpose::yes ? j * s.ldb + l : l * s.ldb + j];
        }
        sum = static_cast<double>(s.scale) * sum + (adds ? c[i * s.ldc + j] : 0);
        if (s.has_bias) sum += bias[j];
        if (s.has_residual) sum += residual[i * s.ld_residual + j];
        c.set(i * s.ldc + j, sum);
      }
    }
  }

  void operator()(const Norm& k) const {
    const Numbers x = at(k.x, k.type);
    float* const rstd = floats(k.statistics);
    float* const mean = rstd + k.rows;
    for (std::int64_t i = 0; i < k.rows; ++i) {
      double sum = 0, squares = 0;
      for (std::int64_t j = 0; j < k.hidden; ++j) sum += x[i * stride_of(k) + j];
      const double centre = k.bias ? sum / static_cast<double>(k.hidden) : 0;
      for (std::int64_t j = 0; j < k.hidden; ++j) squares += std::pow(x[i * stride_of(k) + j] - centre, 2);
      if (k.bias) mean[i] = static_cast<float>(centre);
      rstd[i] = static_cast<float>(1 / std::sqrt(squares / static_cast<double>(k.hidden) + static_cast<double>(k.epsilon)));
    }
    normalise(k, at(k.residual, k.type));
  }
  void operator()(const NormAgain& k) const { normalise(k, Numbers(nullptr, k.type)); }
  void operator()(const NormBackward& k) const {
    const Numbers dy = at(k.dy, k.gradient_type), x = at(k.x, k.type), weight = at(k.weight, k.type), dx = at(k.dx, k.type),
                  residual = at(k.residual_gradient, k.type);
    const float* const rstd = floats(k.statistics);
    const float* const mean = rstd + k.rows;
    const std::int64_t H = k.hidden;
    std::vector<double> dweight(static_cast<std::size_t>(H)), dbias(dweight);
    for (std::int64_t i = 0; i < k.rows; ++i) {
      const double r = rstd[i], centre = k.bias ? mean[i] : 0;
      const std::int64_t row_at = i * stride_of(k);
      double along = 0, sum = 0;
      const auto normed = [&](std::int64_t j) { return (x[row_at + j] - centre) * r; };
      const auto inner = [&](std::int64_t j) { return dy[row_at + j] * (static_cast<double>(k.offset) + weight[j]); };
      for (std::int64_t j = 0; j < H; ++j) {
        const double given = dy[row_at + j];
        along += inner(j) * normed(j), sum += inner(j);
        dweight[static_cast<std::size_t>(j)] += given * normed(j), dbias[static_cast<std::size_t>(j)] += given;
      }
      const double mean_inner = k.bias ? sum / static_cast<double>(H) : 0;
      std::vector<double> row;
      for (std::int64_t j = 0; j < H; ++j)
        row.push_back(r * (inner(j) - mean_inner - normed(j) * along / static_cast<double>(H)) +
                      (residual ? residual[i * H + j] : 0));
      for (std::int64_t j = 0; j < H; ++j) dx.set(row_at + j, row[static_cast<std::size_t>(j)]);
    }
    sum_into(k.dweight, dweight);
    sum_into(k.dbias, dbias);
  }

  void operator()(const Rotate& k) const {
    const ops::RopeShape& s = k.shape;
    const Numbers qkv = at(k.qkv, k.type), qk = at(k.qk, k.type);
    for_heads(
        s,
        [&](std::int64_t row, std::int64_t head, const Place& norm) {
          const std::int64_t from = row * (s.heads + 2 * s.kv_heads) * s.dimension + head * s.dimension,
                             to = row * (s.heads + s.kv_heads) * s.dimension + head * s.dimension;
          std::vector<double> x = head_of(qkv, from, s.dimension);
          if (norm) scale_head(x, at(norm, k.type), rstd_of(x, s.epsilon), s.offset);
          rotate(x, k, head, position_of(row, s.sequence, k), 1);
          for (std::int64_t j = 0; j < s.dimension; ++j) qk.set(to + j, x[static_cast<std::size_t>(j)]);
        },
        k);
  }
  void operator()(const RotateBackward& k) const {
    const ops::RopeShape& s = k.shape;
    const Numbers qkv = at(k.qkv, k.type), dqkv = at(k.dqkv, k.type);
    const auto D = static_cast<std::size_t>(s.dimension);
    std::vector<double> dq(D), dk(D);
    for_heads(
        s,
        [&](std::int64_t row, std::int64_t head, const Place& norm) {
          const std::int64_t from = row * (s.heads + 2 * s.kv_heads) * s.dimension + head * s.dimension;
          std::vector<double> dy = head_of(dqkv, from, s.dimension);
          rotate(dy, k, head, position_of(row, s.sequence, k), -1);
          if (norm) {
            const std::vector<double> x = head_of(qkv, from, s.dimension);
            const Numbers stored = at(norm, k.type);
            const auto weight = [&](std::size_t j) {
              return static_cast<double>(s.offset) + stored[static_cast<std::int64_t>(j)];
            };
            const double r = rstd_of(x, s.epsilon);
            std::vector<double>& sums = head < s.heads ? dq : dk;
            double along = 0;
            for (std::size_t j = 0; j < D; ++j) {
              along += dy[j] * weight(j) * x[j] * r;
              sums[j] += dy[j] * x[j] * r;
            }
            for (std::size_t j = 0; j < D; ++j) dy[j] = r * (dy[j] * weight(j) - x[j] * r * along / static_cast<double>(D));
          }
          for (std::int64_t j = 0; j < s.dimension; ++j) dqkv.set(from + j, dy[static_cast<std::size_t>(j)]);
        },
        k);
    sum_into(k.dq_weight, dq);
    sum_into(k.dk_weight, dk);
  }

  void operator()(const Attend& k) const {
    ops::AttentionShape s = k.shape;
    if (k.cached) s.key_offset = memory_.words->position, s.keys = s.key_offset + s.queries;
    const Numbers v = at(k.v.place, k.type), o = at(k.o.place, k.type);
    float* const lse = floats(k.lse);
    for_queries(s, [&](std::int64_t b, std::int64_t head, std::int64_t t) {
      const Weights w = weights_of(s, k, b, head, t);
      lse[(b * s.heads + head) * s.queries + t] = static_cast<float>(w.log_sum);
      for (std::int64_t d = 0; d < s.head_dim; ++d) {
        double sum = 0;
        for (std::int64_t j = w.first; j <= w.last; ++j)
          sum += w.p[static_cast<std::size_t>(j - w.first)] * v[key(s, k.v, b, head, j) + d];
        o.set(query(s, k.o, b, head, t) + d, sum);
      }
    });
  }
  void operator()(const Sink& k) const {
    for_sinks(k, [&](std::int64_t head, std::int64_t at, float& lse) {
      const double sink = at_type(k.sinks, k)[head], log_sum = static_cast<double>(lse);
      const double most = std::max(sink, log_sum), sum = most + std::log(std::exp(sink - most) + std::exp(log_sum - most));
      const Numbers o = at_type(k.o, k);
      for (std::int64_t d = at; d < at + k.shape.head_dim; ++d) o.set(d, o[d] * std::exp(log_sum - sum));
      lse = static_cast<float>(sum);
    });
  }
  void operator()(const SinkBackward& k) const {
    std::vector<double> sums(static_cast<std::size_t>(k.shape.heads));
    const Numbers o = at_type(k.o, k), d_o = at_type(k.d_o, k);
    for_sinks(k, [&](std::int64_t head, std::int64_t at, float lse) {
      const double p = std::exp(at_type(k.sinks, k)[head] - static_cast<double>(lse));
      for (std::int64_t d = at; d < at + k.shape.head_dim; ++d) sums[static_cast<std::size_t>(head)] -= p * o[d] * d_o[d];
    });
    sum_into(k.dsinks, sums);
  }
  void operator()(const AttendBackward& k) const {
    const ops::AttentionShape& s = k.shape;
    const Numbers q = at(k.q.place, k.type), keys = at(k.k.place, k.type), v = at(k.v.place, k.type),
                  d_o = at(k.d_o.place, k.type), dq = at(k.dq.place, k.type), dk = at(k.dk.place, k.type),
                  dv = at(k.dv.place, k.type);
    const auto each = static_cast<std::size_t>(s.sequences * s.keys * s.kv_heads * s.head_dim);
    std::vector<double> dk_sums(each), dv_sums(each);
    const auto sum_at = [&](std::int64_t b, std::int64_t head, std::int64_t j) {
      return static_cast<std::size_t>(((b * s.keys + j) * s.kv_heads + head / (s.heads / s.kv_heads)) * s.head_dim);
    };
    for_queries(s, [&](std::int64_t b, std::int64_t head, std::int64_t t) {
      // lse tells how a query weighs its keys. It counts the sink, too, where there is one.
      const Weights w = weights_of(s, k, b, head, t, floats(k.lse)[(b * s.heads + head) * s.queries + t]);
      const std::int64_t q_at = query(s, k.q, b, head, t), do_at = query(s, k.d_o, b, head, t);
      std::vector<double> dp;
      double mean = 0;
      for (std::int64_t j = w.first; j <= w.last; ++j) {
        double sum = 0;
        for (std::int64_t d = 0; d < s.head_dim; ++d) sum += d_o[do_at + d] * v[key(s, k.v, b, head, j) + d];
        dp.push_back(sum);
        mean += sum * w.p[static_cast<std::size_t>(j - w.first)];
      }
      std::vector<double> dq_row(static_cast<std::size_t>(s.head_dim));
      for (std::int64_t j = w.first; j <= w.last; ++j) {
        const auto i = static_cast<std::size_t>(j - w.first);
        const double ds = w.p[i] * (dp[i] - mean) * w.slope[i] * static_cast<double>(s.scale);
        for (std::int64_t d = 0; d < s.head_dim; ++d) {
          dq_row[static_cast<std::size_t>(d)] += ds * keys[key(s, k.k, b, head, j) + d];
          dk_sums[sum_at(b, head, j) + static_cast<std::size_t>(d)] += ds * q[q_at + d];
          dv_sums[sum_at(b, head, j) + static_cast<std::size_t>(d)] += w.p[i] * d_o[do_at + d];
        }
      }
      for (std::int64_t d = 0; d < s.head_dim; ++d) dq.set(query(s, k.dq, b, head, t) + d, dq_row[static_cast<std::size_t>(d)]);
    });
    for (std::int64_t b = 0; b < s.sequences; ++b) {
      for (std::int64_t j = 0; j < s.keys; ++j) {
        for (std::int64_t head = 0; head < s.heads; head += s.heads / s.kv_heads) {
          for (std::int64_t d = 0; d < s.head_dim; ++d) {
            dk.set(key(s, k.dk, b, head, j) + d, dk_sums[sum_at(b, head, j) + static_cast<std::size_t>(d)]);
            dv.set(key(s, k.dv, b, head, j) + d, dv_sums[sum_at(b, head, j) + static_cast<std::size_t>(d)]);
          }
        }
      }
    }
  }
  void operator()(const KeepKeys& k) const {
    const Numbers from_keys = at(k.k.place, k.type), from_values = at(k.v.place, k.type), cache = at(k.cache, k.type);
    for (std::int64_t row = 0; row < k.rows; ++row) {
      for (std::int64_t i = 0; i < k.width; ++i) {
        const std::int64_t to = (memory_.words->position + row) * k.width + i;
        cache.set(to, from_keys[row * k.k.stride + i]);
        cache.set(k.context * k.width + to, from_values[row * k.v.stride + i]);
      }
    }
  }

  void operator()(const Activate& k) const {
    const Numbers up = at(k.up, k.type), h = at(k.h, k.type);
    for (std::int64_t i = 0; i < k.rows * k.columns; ++i) {
      const Places p = places_of(k, i);
      h.set(i, activate(k.activation, up[p.inner]).value * (k.gated ? factor_of(k.activation, up[p.outer]).value : 1));
    }
  }
  void operator()(const ActivateBackward& k) const {
    const Numbers dh = at(k.dh, k.type), up = at(k.up, k.type), dup = at(k.dup, k.type), h = at(k.h, k.type);
    for (std::int64_t i = 0; i < k.rows * k.columns; ++i) {
      const Places p = places_of(k, i);
      const double x = up[p.inner], given = dh[i];
      const ValueAndSlope a = activate(k.activation, x);
      const ValueAndSlope factor = k.gated ? factor_of(k.activation, up[p.outer]) : ValueAndSlope{1, 0};
      dup.set(p.inner, given * factor.value * a.slope);
      if (k.gated) dup.set(p.outer, given * a.value * factor.slope);
      h.set(i, a.value * factor.value);
    }
  }

  void operator()(const ColumnSums& k) const {
    const Numbers dy = at(k.dy, k.type);
    std::vector<double> sums(static_cast<std::size_t>(k.columns));
    for (std::int64_t i = 0; i < k.rows * k.columns; ++i) sums[static_cast<std::size_t>(i % k.columns)] += dy[i];
    sum_into(k.sums, sums);
  }
  void operator()(const Round& k) const {
    const float* x = floats(k.x);
    for (std::int64_t i = 0; i < k.elements; ++i) at(k.y, k.type).set(i, x[i]);
  }

  void operator()(const Dropout& k) const {
    const Numbers x = at(k.x, k.type), y = at(k.y, k.type);
    const std::uint64_t key = *reinterpret_cast<const std::uint64_t*>(memory_.at(k.key));
    for (std::int64_t i = 0; i < k.elements; ++i) {
      const bool keeps = k.mask.keeps(key, static_cast<std::uint64_t>(i));
      const double masked = key == 0 ? x[i] : keeps ? x[i] * static_cast<double>(k.mask.factor()) : 0;
      y.set(i, k.adds ? y[i] + masked : masked);
    }
  }

  void operator()(const LookUp& k) const {
    const Numbers table = at(k.table, k.type), x = at(k.x, k.type);
    for_tokens(k, [&](std::int64_t row, std::int64_t of_tile, std::int64_t j) {
      x.set(row * k.hidden + j, static_cast<double>(k.factor) * table[of_tile * k.hidden + j]);
    });
  }
  void operator()(const LookUpBackward& k) const {
    const Numbers dx = at(k.dx, k.type);
    std::vector<double> sums(static_cast<std::size_t>(k.tile.rows * k.hidden));
    for_tokens(k, [&](std::int64_t row, std::int64_t of_tile, std::int64_t j) {
      if (integers(k.tokens)[row] == k.padding) return;
      sums[static_cast<std::size_t>(of_tile * k.hidden + j)] += static_cast<double>(k.factor) * dx[row * k.hidden + j];
    });
    sum_into(k.dtable, sums);
  }
  void operator()(const AddPositions& k) const {
    const Numbers table = at(k.table, k.type), x = at(k.x, k.type);
    for (std::int64_t i = 0; i < k.rows * k.hidden; ++i)
      x.add(i, table[position_of(i / k.hidden, k.sequence, k) * k.hidden + i % k.hidden]);
  }
  void operator()(const AddPositionsBackward& k) const {
    const Numbers dx = at(k.dx, k.type);
    std::vector<double> sums(static_cast<std::size_t>(k.table_rows * k.hidden));
    for (std::int64_t i = 0; i < k.rows * k.hidden; ++i)
      sums[static_cast<std::size_t>(position_of(i / k.hidden, k.sequence, k) * k.hidden + i % k.hidden)] += dx[i];
    sum_into(k.dtable, sums);
  }

  void operator()(const LossTile& k) const {
    const Numbers logits = at(k.logits, k.type);
    float *maximum = floats(k.maximum), *sum = floats(k.sum), *target_logit = floats(k.target_logit);
    for (std::int64_t i = 0; i < k.rows; ++i) {
      if (k.begins) maximum[i] = -std::numeric_limits<float>::infinity(), sum[i] = 0, target_logit[i] = 0;
      double running = static_cast<double>(sum[i]);  // rounded once: a vocabulary is long
      for (std::int64_t j = 0; j < k.tile.rows; ++j) {
        const std::int64_t at_logit = i * k.tile.rows + j;
        if (k.cap > 0) logits.set(at_logit, capped(logits[at_logit], k.cap));
        const double x = logits[at_logit], most = std::max(static_cast<double>(maximum[i]), x);
        running = running * std::exp(maximum[i] - most) + std::exp(x - most);
        maximum[i] = static_cast<float>(most);
        if (integers(k.targets)[i] == k.tile.first + j) target_logit[i] = static_cast<float>(x);
      }
      sum[i] = static_cast<float>(running);
    }
  }
  void operator()(const LossFinish& k) const {
    double total = 0;
    for (std::int64_t i = 0; i < k.rows; ++i) {
      const double whole = floats(k.maximum)[i] + std::log(static_cast<double>(floats(k.sum)[i]));
      floats(k.log_sum_exp)[i] = static_cast<float>(whole);
      if (integers(k.targets)[i] != ops::kIgnoredTarget) total += whole - floats(k.target_logit)[i];
    }
    double& sum = *reinterpret_cast<double*>(memory_.at(k.loss_sum));
    sum = k.begins ? total : sum + total;
  }
  void operator()(const LossBackward& k) const {
    const Numbers logits = at(k.logits, k.type);
    for (std::int64_t i = 0; i < k.rows * k.tile.rows; ++i) {
      const std::int64_t row = i / k.tile.rows, target = integers(k.targets)[row];
      const double x = logits[i],
                   p = std::exp(x - floats(k.log_sum_exp)[row]) - (target == k.tile.first + i % k.tile.rows ? 1 : 0);
      const double slope = k.cap > 0 ? 1 - std::pow(x / static_cast<double>(k.cap), 2) : 1;
      logits.set(i, target == ops::kIgnoredTarget ? 0 : p * slope * static_cast<double>(floats(k.loss_scale)[0]));
    }
  }
  void operator()(const GiveLogits& k) const {
    const std::int64_t row = *reinterpret_cast<const std::int64_t*>(memory_.at(k.logits_row)) - k.first_row;
    float* const out = floats(k.out);
    if (out == nullptr || row < 0 || row >= k.rows) return;
    for (std::int64_t j = 0; j < k.columns; ++j) out[j] = static_cast<float>(at(k.logits, k.type)[row * k.columns + j]);
  }
  void operator()(const Cap& k) const {
    const Numbers x = at(k.x, k.type);
    for (std::int64_t i = 0; x && i < k.elements; ++i) x.set(i, capped(x[i], k.cap));
  }
  void operator()(const auto& of_mixture) const { run_reference(of_mixture, memory_); }

 private:
  Numbers at(const Place& place, DType type) const { return {memory_.at(place), type}; }
  float* floats(const Place& place) const { return reinterpret_cast<float*>(memory_.at(place)); }
  const std::int32_t* integers(const Place& place) const { return reinterpret_cast<const std::int32_t*>(memory_.at(place)); }

  static double capped(double x, float cap) { return static_cast<double>(cap) * std::tanh(x / static_cast<double>(cap)); }

  void sum_into(const Place& place, const std::vector<double>& sums) const {
    float* const out = floats(place);
    for (std::size_t i = 0; out != nullptr && i < sums.size(); ++i)
      out[i] = static_cast<float>(sums[i] + (memory_.first_micro_batch ? 0 : static_cast<double>(out[i])));
  }

  static std::int64_t stride_of(const auto& norm) { return norm.stride > 0 ? norm.stride : norm.hidden; }
  void normalise(const auto& k, const Numbers& residual) const {
    const Numbers x = at(k.x, k.type), weight = at(k.weight, k.type), bias = at(k.bias, k.type), y = at(k.y, k.type);
    const float* const rstd = floats(k.statistics);
    for (std::int64_t i = 0; i < k.rows * k.hidden; ++i) {
      const std::int64_t row = i / k.hidden, j = i % k.hidden, place = row * stride_of(k) + j;
      const double normed = (x[place] - (k.bias ? static_cast<double>(rstd[k.rows + row]) : 0)) * rstd[row];
      y.set(place, normed * (static_cast<double>(k.offset) + weight[j]) + (bias ? bias[j] : 0) + (residual ? residual[i] : 0));
    }
  }

  // Calls visit(row, head, norm weights) for the query heads, then for the key heads.
  std::int64_t position_of(std::int64_t row, std::int64_t sequence, const auto& k) const {
    return row % sequence - (k.first_key ? integers(k.first_key)[row] : 0);
  }
  static void for_heads(const ops::RopeShape& s, const auto& visit, const auto& k) {
    for (std::int64_t row = 0; row < s.n; ++row) {
      for (std::int64_t head = 0; head < s.heads + s.kv_heads; ++head) visit(row, head, head < s.heads ? k.q_weight : k.k_weight);
    }
  }
  static std::vector<double> head_of(const Numbers& x, std::int64_t from, std::int64_t dimension) {
    std::vector<double> head;
    for (std::int64_t j = 0; j < dimension; ++j) head.push_back(x[from + j]);
    return head;
  }
  static double rstd_of(const std::vector<double>& x, float epsilon) {
    double squares = 0;
    for (const double value : x) squares += value * value;
    return 1 / std::sqrt(squares / static_cast<double>(x.size()) + static_cast<double>(epsilon));
  }
  static void scale_head(std::vector<double>& x, const Numbers& weight, double rstd, double offset) {
    for (std::size_t j = 0; j < x.size(); ++j) x[j] *= rstd * (offset + weight[static_cast<std::int64_t>(j)]);
  }
  // Turns x of a head by the angles of a position if `direction` is 1, and back if it is -1.
  void rotate(std::vector<double>& x, const auto& k, std::int64_t head, std::int64_t position, double direction) const {
    const std::size_t half = x.size() / 2;
    const bool has_own = k.q_cosine && head < k.shape.heads;
    const float *const cosine = floats(has_own ? k.q_cosine : k.cosine), *const sine = floats(has_own ? k.q_sine : k.sine);
    for (std::size_t j = 0; j < half; ++j) {
      const std::int64_t angle = position * static_cast<std::int64_t>(half) + static_cast<std::int64_t>(j);
      const double c = cosine[angle], s = direction * sine[angle], a = x[j], b = x[j + half];
      x[j] = a * c - b * s, x[j + half] = b * c + a * s;
    }
  }

  static void for_queries(const ops::AttentionShape& s, const auto& visit) {
    for (std::int64_t b = 0; b < s.sequences; ++b) {
      for (std::int64_t head = 0; head < s.heads; ++head) {
        for (std::int64_t t = 0; t < s.queries; ++t) visit(b, head, t);
      }
    }
  }
  static std::int64_t query(const ops::AttentionShape& s, const Rows& rows, std::int64_t b, std::int64_t head, std::int64_t t) {
    return (b * s.queries + t) * rows.stride + head * s.head_dim;
  }
  static std::int64_t key(const ops::AttentionShape& s, const Rows& rows, std::int64_t b, std::int64_t head, std::int64_t j) {
    return (b * s.keys + j) * rows.stride + head / (s.heads / s.kv_heads) * s.head_dim;
  }
  // For one query and the keys [first, last] that it sees: probabilities, and the slope of each score with respect to q.k.
  struct Weights {
    std::int64_t first = 0, last = 0;
    std::vector<double> p, slope;
    double log_sum = 0;
  };
  Weights weights_of(const ops::AttentionShape& s, const auto& k, std::int64_t b, std::int64_t head, std::int64_t t,
                     std::optional<float> log_sum = {}) const {
    const Numbers q = at(k.q.place, k.type), keys = at(k.k.place, k.type);
    Weights w;
    w.last = s.key_offset + t;
    w.first = s.window > 0 ? std::max<std::int64_t>(0, w.last - s.window + 1) : 0;
    if (k.first_key) w.first = std::max<std::int64_t>(w.first, integers(k.first_key)[b * s.queries + t]);
    double most = -std::numeric_limits<double>::infinity(), sum = 0;
    for (std::int64_t j = w.first; j <= w.last; ++j) {
      double score = 0;
      for (std::int64_t d = 0; d < s.head_dim; ++d) score += q[query(s, k.q, b, head, t) + d] * keys[key(s, k.k, b, head, j) + d];
      score *= static_cast<double>(s.scale);
      const double cap = static_cast<double>(s.softcap), bent = cap > 0 ? std::tanh(score / cap) : 0;
      if (cap > 0) score = cap * bent;
      w.slope.push_back(1 - bent * bent);
      most = std::max(most, score);
      w.p.push_back(score);
    }
    for (const double score : w.p) sum += std::exp(score - most);
    w.log_sum = log_sum ? static_cast<double>(*log_sum) : most + std::log(sum);
    for (double& p : w.p) p = std::exp(p - w.log_sum);
    return w;
  }

  Numbers at_type(const Place& place, const auto& k) const { return at(place, k.type); }
  // Calls visit(head, the first element of the row's head in o, log-sum-exp).
  void for_sinks(const auto& k, const auto& visit) const {
    const ops::AttentionShape& s = k.shape;
    for (std::int64_t row = 0; row < s.sequences * s.queries; ++row) {
      for (std::int64_t head = 0; head < s.heads; ++head)
        visit(head, (row * s.heads + head) * s.head_dim,
              floats(k.lse)[(row / s.queries * s.heads + head) * s.queries + row % s.queries]);
    }
  }

  // For the i-th element of h, the places of the activation's argument and, with a gate, of the other factor.
  struct Places {
    std::int64_t inner, outer;
  };
  static Places places_of(const auto& k, std::int64_t i) {
    if (!k.gated) return {i, 0};
    if (k.activation == Activation::clamped_swiglu) return {2 * i, 2 * i + 1};
    const std::int64_t at = i / k.columns * 2 * k.columns + i % k.columns;
    return {at, at + k.columns};
  }

  // Calls visit(row, row of the tile, column) for the tokens that lie in the tile.
  void for_tokens(const auto& k, const auto& visit) const {
    const auto* tokens = integers(k.tokens);
    for (std::int64_t row = 0; row < k.rows; ++row) {
      const std::int64_t of_tile = tokens[row] - k.tile.first;
      for (std::int64_t j = 0; of_tile >= 0 && of_tile < k.tile.rows && j < k.hidden; ++j) visit(row, of_tile, j);
    }
  }

  const PassMemory& memory_;
};

}  // namespace

void ReferenceBackend::prepare(const CompiledModel&) {}

void ReferenceBackend::run(const CallList& list, const PassMemory& memory) {
  for (const KernelCall& call : list) std::visit(Reference(memory), call.kernel);
}

}  // namespace spillway
