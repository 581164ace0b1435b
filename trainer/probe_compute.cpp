#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "memory/arena.h"
#include "models/attention_ops.h"
#include "trainer/probe_measure.h"
#include "trainer/probe_work.h"

namespace spillway {
namespace {

// Small and large layers, each as often as it takes for both to weigh by their work, with many rows and with few: what a product
// costs for each row, and besides. Shows each class of shapes, too.
void measure_products(const ThreadPool& pool, const Sampling& sampling, DType dtype, const std::string& name,
                      std::vector<Measurement>& measurements) {
  constexpr std::array<std::array<std::int64_t, 2>, 3> layers = {{{576, 1536}, {1024, 2048}, {2048, 2048}}};
  constexpr std::array<std::int64_t, 2> rows = {512, 64};
  std::array<std::vector<double>, 2> seconds;
  std::array<double, 2> flops{};
  std::vector<Measurement> classes;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    for (const auto& [in, out] : layers) {  // one at a time, for the sake of memory
      Products layer(pool, dtype, rows[r], in, out, Weights::cold);
      std::vector<double> each = seconds_of_each(sampling, [&] { layer.run(); });
      // Disturbed samples are put together with disturbed ones: the middle is then that of the middles.
      std::ranges::sort(each);
      if (flops[r] == 0) seconds[r].resize(each.size());
      seconds[r].resize(std::min(seconds[r].size(), each.size()));
      for (std::size_t i = 0; i < seconds[r].size(); ++i) seconds[r][i] += each[i];
      flops[r] += layer.flops();
      classes.push_back(measured(name + "_flops", layer.flops(), each));
      classes.back().of = fmt::format("{} x {} x {}", rows[r], in, out);
    }
  }
  std::vector<double> rates, extra_rows;
  for (std::size_t i = 0; i < std::min(seconds[0].size(), seconds[1].size()); ++i) {
    // On a busy machine few rows may seem to cost as much as many.
    const double between = std::max(seconds[0][i] - seconds[1][i], seconds[0][i] / 8);
    rates.push_back((flops[0] - flops[1]) / between);
    const double per_row = between / static_cast<double>(rows[0] - rows[1]);
    extra_rows.push_back(std::max(1e-3, seconds[1][i] / per_row - static_cast<double>(rows[1])));
  }
  measurements.push_back(middle_of(name + "_flops", std::move(rates)));
  for (Measurement& part : classes) measurements.push_back(std::move(part));
  measurements.push_back(middle_of(name + "_extra_rows", std::move(extra_rows)));
}

template <typename E>
Measurement attention(const ThreadPool& pool, const Sampling& sampling, std::string name) {
  const ops::AttentionShape shape{
      .sequences = 1, .queries = 512, .keys = 512, .heads = 8, .kv_heads = 2, .head_dim = 64, .scale = 0.125f};
  constexpr DType dtype = sizeof(E) == 4 ? DType::float32 : DType::bfloat16;
  const std::int64_t rows = 512, q = 8 * 64, kv = 2 * 64, row = q + 2 * kv;
  const Bytes scratch = std::max(ops::attention_forward_scratch_bytes(shape, dtype, pool.threads()),
                                 ops::attention_backward_scratch_bytes(shape, dtype, pool.threads()));
  const Bytes matrix = rows * row * 4;
  const Arena arena(4 * matrix + rows * 8 * 4 + scratch, "probe of attention");
  auto at = [&](int index) { return reinterpret_cast<E*>(arena.at(index * matrix)); };
  E *qkv = at(0), *dqkv = at(1), *o = at(2), *d_o = at(3);
  auto* lse = reinterpret_cast<float*>(arena.at(4 * matrix));
  std::byte* work = arena.at(4 * matrix + rows * 8 * 4);
  fill_for_probe(arena.at(0), matrix, dtype);
  fill_for_probe(arena.at(3 * matrix), matrix, dtype);
  const auto work_once = [&] {
    const ops::AttentionInputs<E> in{{qkv, row}, {qkv + q, row}, {qkv + q + kv, row}};
    ops::attention_forward<E>(pool, shape, in, {o, q}, lse, work);
    ops::attention_backward<E>(pool, shape, in, {{o, q}, lse, {d_o, q}}, {{dqkv, row}, {dqkv + q, row}, {dqkv + q + kv, row}},
                               work);
  };
  const double pairs = 0.5 * 512 * 513;
  // Two products forward, five backward.
  return measured(std::move(name), 7 * 2.0 * pairs * 64 * 8, seconds_of_each(sampling, work_once));
}

}  // namespace

std::vector<Measurement> measure_compute(const ThreadPool& pool, const Sampling& sampling) {
  std::vector<Measurement> measurements;
  measure_products(pool, sampling, DType::bfloat16, "gemm_bf16", measurements);
  measure_products(pool, sampling, DType::float32, "gemm_fp32", measurements);
  measurements.push_back(attention<BFloat16>(pool, sampling, "attention_bf16_flops"));
  measurements.push_back(attention<float>(pool, sampling, "attention_fp32_flops"));
  {
    Update update(pool, 6 << 20);  // 96 MiB: beyond the caches
    measurements.push_back(measured("memory_bytes", update.pass_bytes(), seconds_of_each(sampling, [&] { update.pass(); })));
    measurements.push_back(measured("update_bytes", update.update_bytes(), seconds_of_each(sampling, [&] { update.run(); })));
  }
  return measurements;
}

}  // namespace spillway
