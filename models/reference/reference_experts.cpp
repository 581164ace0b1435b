#include "models/reference/reference_experts.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "models/reference/numbers.h"

namespace spillway {
namespace {

using namespace kernels;

float* floats(const PassMemory& memory, const Place& place) { return reinterpret_cast<float*>(memory.at(place)); }
double* doubles(const PassMemory& memory, const Place& place) { return reinterpret_cast<double*>(memory.at(place)); }

// The k experts with the largest probabilities, ascending; of equal ones the lower number.
std::vector<std::int32_t> chosen(const float* p, const ops::RouterShape& s) {
  std::vector<std::int32_t> order(static_cast<std::size_t>(s.experts));
  std::iota(order.begin(), order.end(), 0);
  const auto size = [&](std::int32_t e) { return std::isnan(p[e]) ? -1.0f : p[e]; };
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) { return size(a) > size(b); });
  order.resize(static_cast<std::size_t>(s.per_row));
  std::sort(order.begin(), order.end());
  return order;
}

// Rows of the matrix of gates and ups: all gates, then all ups, or in turns.
bool alternates(const auto& k) { return k.activation == Activation::clamped_swiglu; }
bool is_gate(const auto& k, std::int64_t i) { return alternates(k) ? i % 2 == 0 : i < k.shape.width; }
std::int64_t gate_row(const auto& k, std::int64_t i) { return alternates(k) ? 2 * i : i; }
std::int64_t up_row(const auto& k, std::int64_t i) { return alternates(k) ? 2 * i + 1 : k.shape.width + i; }

// As a kernel stores it: a clamp's slope is 1 on the one side of its limit and 0 on the other, so it must be known on which.
double as_stored(double x, DType type) {
  alignas(8) std::byte stored[8];
  const Numbers number(stored, type);
  number.set(0, x);
  return number[0];
}

// The i-th expert's row of the result, and what its backward needs. One row, one expert.
struct OneRow {
  std::vector<double> gate, up, h, out;
};
OneRow expert_of_row(const Numbers& x, std::int64_t row, const Numbers& w, std::int64_t begin, const auto& k) {
  const std::int64_t H = k.shape.hidden, I = k.shape.width;
  OneRow one;
  for (std::int64_t i = 0; i < 2 * I; ++i) {
    double sum = k.shape.biased ? w[begin + k.shape.up_bias() + i] : 0;
    for (std::int64_t j = 0; j < H; ++j) sum += x[row * H + j] * w[begin + i * H + j];
    (is_gate(k, i) ? one.gate : one.up).push_back(alternates(k) ? as_stored(sum, k.type) : sum);
  }
  for (std::size_t i = 0; i < one.gate.size(); ++i)
    one.h.push_back(activate(k.activation, one.gate[i]).value * factor_of(k.activation, one.up[i]).value);
  for (std::int64_t j = 0; j < H; ++j) {
    double sum = k.shape.biased ? w[begin + k.shape.down_bias() + j] : 0;
    for (std::int64_t i = 0; i < I; ++i) sum += one.h[static_cast<std::size_t>(i)] * w[begin + k.shape.down() + j * I + i];
    one.out.push_back(sum);
  }
  return one;
}

}  // namespace

void run_reference(const Route& k, const PassMemory& memory) {
  const ops::RouterShape& s = k.shape;
  const auto f = static_cast<double>(s.factor);
  const ops::Routing to = ops::routing_at(memory.at(k.routing), s);
  float* const log_sums = floats(memory, k.log_sums);
  auto* const fault = reinterpret_cast<std::int32_t*>(memory.at(k.fault));
  if (k.begins) *fault = 0;
  std::vector<std::vector<std::int32_t>> places(static_cast<std::size_t>(s.columns()));
  for (std::int64_t row = 0; row < s.rows; ++row) {
    float* const p = floats(memory, k.scores) + row * s.columns();
    double most = p[0], sum = 0;
    for (std::int64_t e = 0; e < s.experts; ++e) most = std::max(most, static_cast<double>(p[e]));
    for (std::int64_t e = 0; e < s.experts; ++e) sum += std::exp(p[e] - most);
    const double log_sum = most + std::log(sum);
    if (!std::isfinite(log_sum) && *fault == 0) *fault = static_cast<std::int32_t>(k.layer + 1);
    log_sums[row] = static_cast<float>(log_sum);
    for (std::int64_t e = 0; e < s.experts; ++e) p[e] = static_cast<float>(std::exp(p[e] - log_sum));
    std::vector<std::int32_t> experts = chosen(p, s);
    double whole = 0;
    for (const std::int32_t e : experts) whole += p[e];
    if (s.shared) {
      if (!std::isfinite(p[s.experts]) && *fault == 0) *fault = static_cast<std::int32_t>(k.layer + 1);
      p[s.experts] = static_cast<float>(1 / (1 + std::exp(-static_cast<double>(p[s.experts]))));
      experts.push_back(static_cast<std::int32_t>(s.experts));
    }
    for (std::int64_t j = 0; j < s.places(); ++j) {
      const std::int32_t e = experts[static_cast<std::size_t>(j)];
      const std::int64_t place = row * s.places() + j;
      to.experts[place] = e;
      to.weights[place] = static_cast<float>(f * p[e] / (s.normalised && e < s.experts ? whole : 1));
      places[static_cast<std::size_t>(e)].push_back(static_cast<std::int32_t>(place));
    }
  }
  std::int32_t begin = 0;
  for (std::size_t e = 0; e < places.size(); ++e) {
    to.begins[e] = begin;
    for (const std::int32_t place : places[e]) to.places[begin++] = place;
  }
  to.begins[s.columns()] = begin;
}

void run_reference(const AddRouting& k, const PassMemory& memory) {
  const ops::RouterShape& s = k.shape;
  double* const totals = doubles(memory, k.totals);
  if (k.begins) std::fill_n(totals, ops::router_totals(s.experts), 0.0);
  const ops::Routing routing = ops::routing_at(memory.at(k.routing), s);
  auto& load = *reinterpret_cast<ExpertLoad*>(memory.at(k.load));
  if (k.begins) load = {.most = 0, .least = HUGE_VAL, .entropy = 0};
  for (std::int64_t e = 0; e < s.experts; ++e) {
    const double count = routing.begins[e + 1] - routing.begins[e];
    const double share = count / static_cast<double>(s.rows * s.per_row), even = static_cast<double>(s.experts) * share;
    totals[e] += count;
    load.most = std::max(load.most, even), load.least = std::min(load.least, even);
    if (count > 0 && s.experts > 1)
      load.entropy -= share * std::log(share) / std::log(static_cast<double>(s.experts)) / static_cast<double>(k.layers);
  }
  for (std::int64_t row = 0; row < s.rows; ++row) {
    for (std::int64_t e = 0; e < s.experts; ++e) totals[s.experts + e] += floats(memory, k.scores)[row * s.columns() + e];
    totals[2 * s.experts] += std::pow(static_cast<double>(floats(memory, k.log_sums)[row]), 2);
  }
  if (!k.ends) return;
  const auto all = static_cast<double>(k.layers * s.rows);
  double sum = 0;
  for (std::int64_t e = 0; e < s.experts; ++e) sum += totals[e] / all * (totals[s.experts + e] / all);
  *doubles(memory, k.balance_loss) = static_cast<double>(s.experts) * sum;
  *doubles(memory, k.z_loss) = totals[2 * s.experts] / all;
}

void run_reference(const RouteBackward& k, const PassMemory& memory) {
  const ops::RouterShape& s = k.shape;
  const auto f = static_cast<double>(s.factor);
  const ops::Routing routing = ops::routing_at(memory.at(k.routing), s);
  const Numbers dlogits(memory.at(k.dlogits), k.type);
  const float* const dweights = floats(memory, k.dweights);
  const double all = static_cast<double>(k.layers * s.rows), share = k.batch_share ? floats(memory, k.batch_share)[0] : 0;
  for (std::int64_t row = 0; row < s.rows; ++row) {
    const float* const p = floats(memory, k.scores) + row * s.columns();
    std::vector<double> dp(static_cast<std::size_t>(s.experts));
    double whole = 0, along = 0;
    const std::int64_t first = row * s.places(), end = first + s.per_row;
    for (std::int64_t place = first; place < end; ++place) {
      whole += p[routing.experts[place]];
      along += static_cast<double>(dweights[place]) * routing.weights[place];
    }
    for (std::int64_t place = first; place < end; ++place)
      dp[static_cast<std::size_t>(routing.experts[place])] =
          s.normalised ? (f * dweights[place] - along) / whole : f * dweights[place];
    double mean = 0;
    for (std::size_t e = 0; e < dp.size(); ++e) {
      if (k.balance > 0)
        dp[e] +=
            share * static_cast<double>(k.balance) * static_cast<double>(s.experts) * doubles(memory, k.totals)[e] / all / all;
      mean += dp[e] * p[e];
    }
    const double dz = k.z > 0 ? share * static_cast<double>(k.z) * 2 * floats(memory, k.log_sums)[row] / all : 0;
    for (std::size_t e = 0; e < dp.size(); ++e)
      dlogits.set(row * s.columns() + static_cast<std::int64_t>(e), p[e] * (dp[e] - mean + dz));
    const double of_shared = s.shared ? p[s.experts] : 0;
    if (s.shared) dlogits.set(row * s.columns() + s.experts, of_shared * (1 - of_shared) * f * dweights[end]);
  }
}

void run_reference(const Experts& k, const PassMemory& memory) {
  const ops::ExpertsShape& s = k.shape;
  const ops::Routing routing = ops::routing_at(memory.at(k.routing), s.router);
  const Numbers x(memory.at(k.x), k.type), w(memory.at(k.weights), k.type), residual(memory.at(k.residual), k.type);
  float* const sum = floats(memory, k.sum);
  for (std::int64_t i = 0; residual && i < s.router.rows * s.hidden; ++i) sum[i] = static_cast<float>(residual[i]);
  for (std::int64_t e = s.first; e < s.first + s.count; ++e) {
    for (std::int32_t at = routing.begins[e]; at < routing.begins[e + 1]; ++at) {
      const std::int64_t place = routing.places[at], row = place / s.router.places();
      const OneRow one = expert_of_row(x, row, w, (e - s.first) * s.stride(), k);
      for (std::int64_t j = 0; j < s.hidden; ++j)
        sum[row * s.hidden + j] += static_cast<float>(routing.weights[place] * one.out[static_cast<std::size_t>(j)]);
    }
  }
}

void run_reference(const ExpertsBackward& k, const PassMemory& memory) {
  const ops::ExpertsShape& s = k.shape;
  const std::int64_t H = s.hidden, I = s.width;
  const ops::Routing routing = ops::routing_at(memory.at(k.routing), s.router);
  const Numbers x(memory.at(k.x), k.type), dy(memory.at(k.dy), k.type), w(memory.at(k.weights), k.type);
  float *const dx = floats(memory, k.dx), *const dweights = floats(memory, k.dweights);
  float* const gradients = k.gradients ? floats(memory, k.gradients) : nullptr;
  if (k.begins) std::fill_n(dx, s.router.rows * H, 0.0f);
  for (std::int64_t e = s.first + s.count; e-- > s.first;) {
    const std::int64_t begin = (e - s.first) * s.stride();
    std::vector<double> dw(static_cast<std::size_t>(s.stride()));
    for (std::int32_t at = routing.begins[e]; at < routing.begins[e + 1]; ++at) {
      const std::int64_t place = routing.places[at], row = place / s.router.places();
      const double weight = routing.weights[place];
      const OneRow one = expert_of_row(x, row, w, begin, k);
      double along = 0;
      std::vector<double> dx_row(static_cast<std::size_t>(H));
      for (std::int64_t i = 0; i < I; ++i) {
        const auto at_i = static_cast<std::size_t>(i);
        double dh = 0;
        for (std::int64_t j = 0; j < H; ++j) {
          dh += dy[row * H + j] * w[begin + s.down() + j * I + i];
          dw[static_cast<std::size_t>(s.down() + j * I + i)] += weight * dy[row * H + j] * one.h[at_i];
        }
        along += dh * one.h[at_i];
        const ValueAndSlope a = activate(k.activation, one.gate[at_i]), factor = factor_of(k.activation, one.up[at_i]);
        const double dgate = weight * dh * factor.value * a.slope, dup = weight * dh * a.value * factor.slope;
        const std::int64_t gate_at = gate_row(k, i), up_at = up_row(k, i);
        for (std::int64_t j = 0; j < H; ++j) {
          dw[static_cast<std::size_t>(gate_at * H + j)] += dgate * x[row * H + j];
          dw[static_cast<std::size_t>(up_at * H + j)] += dup * x[row * H + j];
          dx_row[static_cast<std::size_t>(j)] += dgate * w[begin + gate_at * H + j] + dup * w[begin + up_at * H + j];
        }
        if (!s.biased) continue;
        dw[static_cast<std::size_t>(s.up_bias() + gate_at)] += dgate;
        dw[static_cast<std::size_t>(s.up_bias() + up_at)] += dup;
      }
      for (std::int64_t j = 0; s.biased && j < H; ++j) {
        along += dy[row * H + j] * w[begin + s.down_bias() + j];
        dw[static_cast<std::size_t>(s.down_bias() + j)] += weight * dy[row * H + j];
      }
      dweights[place] = static_cast<float>(along);
      for (std::int64_t j = 0; j < H; ++j) dx[row * H + j] += static_cast<float>(dx_row[static_cast<std::size_t>(j)]);
    }
    for (std::int64_t i = 0; gradients != nullptr && i < s.stride(); ++i) {
      const double before = memory.first_micro_batch ? 0 : static_cast<double>(gradients[begin + i]);
      gradients[begin + i] = static_cast<float>(before + dw[static_cast<std::size_t>(i)]);
    }
  }
}

}  // namespace spillway
