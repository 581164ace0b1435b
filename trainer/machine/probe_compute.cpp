#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "memory/runtime/arena.h"
#include "memory/search/simulate.h"
#include "models/catalogue/catalogue.h"
#include "models/cpu/attention/attention_ops.h"
#include "trainer/machine/probe_measure.h"
#include "trainer/machine/probe_work.h"
#include "trainer/machine/units_alone.h"

namespace spillway {
namespace {

constexpr std::int64_t kManyRows = 512, kFewRows = 64;
constexpr std::string_view kModel = "smollm2-360m";  // in width between small models and large ones

// Measures small and large layers with many rows, weighted by their work; with few rows they are only shown.
void measure_products(const ThreadPool& pool, const Sampling& sampling, DType dtype, const std::string& name,
                      std::vector<Measurement>& measurements) {
  constexpr std::array<std::array<std::int64_t, 2>, 3> layers = {{{576, 1536}, {1024, 2048}, {2048, 2048}}};
  std::vector<double> seconds;
  double flops = 0;
  std::vector<Measurement> classes;
  for (const std::int64_t rows : {kManyRows, kFewRows}) {
    for (const auto& [in, out] : layers) {  // one layer at a time, to save memory
      Products layer(pool, dtype, rows, in, out);
      std::vector<double> each = seconds_of_each(sampling, [&] { return seconds_of([&] { layer.run(); }); });
      classes.push_back(measured(name + "_flops", layer.flops(), each));
      classes.back().of = fmt::format("{} x {} x {}", rows, in, out);
      if (rows != kManyRows) continue;
      // Sorting adds disturbed samples to disturbed ones.
      std::ranges::sort(each);
      if (flops == 0) seconds.resize(each.size());
      seconds.resize(std::min(seconds.size(), each.size()));
      for (std::size_t i = 0; i < seconds.size(); ++i) seconds[i] += each[i];
      flops += layer.flops();
    }
  }
  measurements.push_back(measured(name + "_flops", flops, seconds));
  for (Measurement& part : classes) measurements.push_back(std::move(part));
}

// Measures two figures for the time that the parts do not explain, because threads wait for each other and operands are in no
// cache: units are slower by a share, and as slow as if they had a few more rows. The seconds of a layer with many rows and with
// few rows give both.
void measure_layers(const ThreadPool& pool, const Sampling& sampling, MachineProfile parts, DType dtype, const std::string& type,
                    std::vector<Measurement>& measurements) {
  parts.gemm_bf16_extra_rows = parts.gemm_fp32_extra_rows = 0;
  parts.layers_bf16 = parts.layers_fp32 = 1;
  struct Layer {
    std::vector<double> seconds;
    double of_parts = 0, of_a_row = 0;  // seconds by the rates of its parts; seconds of one row's products
  };
  Sampling by_time = sampling;
  by_time.samples = std::numeric_limits<int>::max(), by_time.least_samples = 1, by_time.figure_s = sampling.layers_s;
  const auto measure = [&](std::int64_t rows) {
    UnitsAlone units(pool, kModel, {.dtype = dtype, .sequence = rows}, UnitsAlone::Units::of_layers);
    Layer layer{seconds_of_each(by_time, [&] { return seconds_of(units); })};
    std::ranges::sort(layer.seconds);
    layer.of_parts = seconds_of(parts, units.graph(), units.work_of_all());
    layer.of_a_row = seconds_of(parts, units.graph(), {.gemm_flops = units.work_of_all().gemm_flops}) / static_cast<double>(rows);
    return layer;
  };
  const Layer many = measure(dtype == DType::float32 ? kManyRows / 2 : kManyRows),
              few = measure(kFewRows);  // to save memory
  const auto share = [&](double many_s, double few_s) {
    // On a busy machine few rows may seem to cost as much as many, and a unit less than its parts.
    return std::clamp((many.of_parts - few.of_parts) / std::max(many_s - few_s, many_s / 2), 0.05, 2.0);
  };
  const auto extra_rows = [&](double many_s, double few_s) {
    return std::max(1e-3, (share(many_s, few_s) * few_s - few.of_parts) / few.of_a_row);
  };
  // The value comes from the mean seconds. Least and most come from pairs of sorted samples, so that disturbed samples meet
  // disturbed ones.
  std::vector<double> shares, rows;
  const std::size_t pairs = std::min(many.seconds.size(), few.seconds.size());
  for (std::size_t i = 0; i < pairs; ++i) {
    const auto sample = [&](const Layer& layer) { return layer.seconds[i * layer.seconds.size() / pairs]; };
    shares.push_back(share(sample(many), sample(few)));
    rows.push_back(extra_rows(sample(many), sample(few)));
  }
  const auto add = [&](const std::string& name, const std::vector<double>& samples, double value) {
    measurements.push_back(mean_of(name, samples));
    measurements.back().value = std::clamp(value, measurements.back().least, measurements.back().most);
  };
  const double many_s = mean(many.seconds), few_s = mean(few.seconds);
  add("layers_" + type, shares, share(many_s, few_s));
  add("gemm_" + type + "_extra_rows", rows, extra_rows(many_s, few_s));
}

// The arrays of a figure, one after another, in memory of their own.
class Arrays {
 public:
  Arrays(const ThreadPool& pool, Bytes bytes, std::string name) : arena_(bytes, std::move(name)) { arena_.prefault(pool); }

  std::byte* place(Bytes bytes) { return arena_.at(std::exchange(end_, end_ + bytes)); }

  // An array of plain numbers in place of values.
  template <typename E>
  E* numbers(std::int64_t count) {
    const Bytes bytes = count * Bytes{sizeof(E)};
    std::byte* const at = place(bytes);
    fill_with_numbers(at, bytes, sizeof(E) == sizeof(float) ? DType::float32 : DType::bfloat16);
    return reinterpret_cast<E*>(at);
  }

 private:
  Arena arena_;
  Bytes end_ = 0;
};

template <typename E>
Measurement attention(const ThreadPool& pool, const Sampling& sampling, std::string name) {
  constexpr std::int64_t n = 512, heads = 8, kv_heads = 2, width = 64;
  constexpr std::int64_t q = heads * width, kv = kv_heads * width, row = q + 2 * kv;
  const ops::AttentionShape shape{
      .sequences = 1, .queries = n, .keys = n, .heads = heads, .kv_heads = kv_heads, .head_dim = width, .scale = 0.125f};
  constexpr DType dtype = sizeof(E) == sizeof(float) ? DType::float32 : DType::bfloat16;
  const Bytes scratch = std::max(ops::attention_forward_scratch_bytes(shape, dtype, pool.threads()),
                                 ops::attention_backward_scratch_bytes(shape, dtype, pool.threads()));
  Arrays arrays(pool, 2 * n * (row + q) * Bytes{sizeof(E)} + n * heads * Bytes{sizeof(float)} + scratch, "probe of attention");
  E *qkv = arrays.numbers<E>(n * row), *dqkv = arrays.numbers<E>(n * row);
  E *o = arrays.numbers<E>(n * q), *d_o = arrays.numbers<E>(n * q);
  auto* lse = arrays.numbers<float>(n * heads);
  std::byte* work = arrays.place(scratch);
  const auto work_once = [&] {
    const ops::AttentionInputs<E> in{{qkv, row}, {qkv + q, row}, {qkv + q + kv, row}};
    ops::attention_forward<E>(pool, shape, in, {o, q}, lse, work);
    ops::attention_backward<E>(pool, shape, in, {{o, q}, lse, {d_o, q}}, {{dqkv, row}, {dqkv + q, row}, {dqkv + q + kv, row}},
                               work);
  };
  constexpr double pairs = 0.5 * n * (n + 1);
  // Two products run forward and five backward.
  return measured(std::move(name), 7 * 2.0 * pairs * q, seconds_of_each(sampling, [&] { return seconds_of(work_once); }));
}

// Norms and an activation, forward and backward, at the shapes of kModel's layers. Products right before the backward have just
// written a part of its inputs; the forward's arrays are in no cache any more.
template <typename E>
Measurement pointwise(const ThreadPool& pool, const Sampling& sampling, std::string name) {
  const ModelConfig config = catalogue_config(kModel);
  const std::int64_t n = kManyRows, H = config.hidden, I = config.mlp_width;
  const Bytes stream = n * H * Bytes{sizeof(E)}, inner = n * I * Bytes{sizeof(E)};
  const Bytes scratch = ops::rmsnorm_backward_scratch_bytes(n, H);
  Arrays arrays(pool, 3 * stream + 6 * inner + H * Bytes{sizeof(E)} + (n + H) * Bytes{sizeof(float)} + scratch,
                "probe of norms and activations");
  // The two arrays that the forward leaves lie side by side.
  E *x = arrays.numbers<E>(n * H), *gate_up = arrays.numbers<E>(2 * n * I), *y = arrays.numbers<E>(n * H);
  E *dx = arrays.numbers<E>(n * H), *h = arrays.numbers<E>(n * I), *dh = arrays.numbers<E>(n * I);
  E *dgate_up = arrays.numbers<E>(2 * n * I), *weight = arrays.numbers<E>(H);
  auto *rstd = arrays.numbers<float>(n), *dweight = arrays.numbers<float>(H);
  std::byte* work = arrays.place(scratch);
  const auto once = [&] {
    double seconds = seconds_of([&] {
      ops::rmsnorm_forward<E>(pool, n, H, x, weight, 1e-5f, y, rstd);
      ops::gated_forward<E>(pool, Activation::silu, n, I, gate_up, h);
    });
    leave_caches(reinterpret_cast<std::byte*>(x), stream + 2 * inner);
    seconds += seconds_of([&] {
      ops::gated_backward<E>(pool, Activation::silu, n, I, dh, gate_up, dgate_up, h);
      ops::rmsnorm_apply<E>(pool, n, H, x, weight, rstd, y);
      ops::rmsnorm_backward<E, E>(pool, n, H, y, x, weight, rstd, dx, dx, dweight, ops::Store::write, work);
    });
    return seconds;
  };
  // Bytes as units count them: each array once.
  return measured(std::move(name), static_cast<double>((2 + 2 + 4) * stream + (3 + 6) * inner), seconds_of_each(sampling, once));
}

}  // namespace

std::vector<Measurement> measure_compute(const ThreadPool& pool, const Sampling& sampling) {
  std::vector<Measurement> measurements;
  measure_products(pool, sampling, DType::bfloat16, "gemm_bf16", measurements);
  measure_products(pool, sampling, DType::float32, "gemm_fp32", measurements);
  measurements.push_back(attention<BFloat16>(pool, sampling, "attention_bf16_flops"));
  measurements.push_back(attention<float>(pool, sampling, "attention_fp32_flops"));
  {
    Update update(pool, 6 << 20);  // 96 MiB: most of the written bytes leave the caches, too
    const auto of = [&](void (Update::*work)()) { return seconds_of_each(sampling, [&] { return seconds_of(update, work); }); };
    measurements.push_back(measured("memory_bytes", update.pass_bytes(), of(&Update::pass)));
    const std::vector<double> alone_s = of(&Update::run);
    measurements.push_back(measured("update_bytes", update.update_bytes(), alone_s));
    measurements.push_back(figure("hashed_update", mean(of(&Update::run_hashed)) / mean(alone_s)));
    measurements.push_back(measured("copy_bytes", update.copied_bytes(), of(&Update::copy)));
  }
  measurements.push_back(pointwise<BFloat16>(pool, sampling, "pointwise_bf16_bytes"));
  measurements.push_back(pointwise<float>(pool, sampling, "pointwise_fp32_bytes"));
  return measurements;
}

std::vector<Measurement> measure_layers(const ThreadPool& pool, const Sampling& sampling, const MachineProfile& parts) {
  std::vector<Measurement> measurements;
  measure_layers(pool, sampling, parts, DType::bfloat16, "bf16", measurements);
  measure_layers(pool, sampling, parts, DType::float32, "fp32", measurements);
  return measurements;
}

}  // namespace spillway
