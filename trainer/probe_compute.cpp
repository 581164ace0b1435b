#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <thread>

#include "memory/arena.h"
#include "memory/error.h"
#include "models/attention_ops.h"
#include "models/ops.h"
#include "offload/host_adamw.h"
#include "trainer/probe_measure.h"

namespace spillway {
namespace {

void fill(std::byte* data, Bytes bytes, DType dtype) {
  const std::int64_t elements = bytes / size_of(dtype);
  for (std::int64_t i = 0; i < elements; ++i) {
    const float value = 0.01f * static_cast<float>((i * 37) % 101 - 50);
    if (dtype == DType::float32) {
      reinterpret_cast<float*>(data)[i] = value;
    } else {
      reinterpret_cast<BFloat16*>(data)[i] = split_master(value).high;
    }
  }
}

// The three products of a linear layer: n rows, `in` and `out` features.
class Products {
 public:
  Products(const ThreadPool& pool, DType dtype, std::int64_t n, std::int64_t in, std::int64_t out)
      : pool_(pool),
        engine_(pool.threads()),
        forward_(ops::linear_forward(dtype, n, in, out)),
        input_(ops::linear_input_gradient(dtype, n, in, out, dtype)),
        weight_(ops::linear_weight_gradient(dtype, n, in, out, ops::Store::write)),
        x_(round_up(n * in * 4, 64)),
        w_(round_up(in * out * 4, 64)),
        y_(round_up(n * out * 4, 64)),
        arena_(x_ + 2 * w_ + y_ +
                   std::max({engine_.scratch_bytes(forward_), engine_.scratch_bytes(input_), engine_.scratch_bytes(weight_)}),
               "probe of matrix products"),
        flops_(6.0 * static_cast<double>(n) * static_cast<double>(in) * static_cast<double>(out)) {
    fill(arena_.at(0), x_, dtype), fill(arena_.at(x_), w_, dtype), fill(arena_.at(x_ + w_), y_, dtype);
  }

  void run() {
    std::byte *x = arena_.at(0), *w = arena_.at(x_), *y = arena_.at(x_ + w_), *dw = arena_.at(x_ + w_ + y_),
              *scratch = arena_.at(x_ + 2 * w_ + y_);
    engine_.run(pool_, forward_, {.a = x, .b = w, .c = y}, scratch);
    engine_.run(pool_, input_, {.a = y, .b = w, .c = x}, scratch);
    engine_.run(pool_, weight_, {.a = y, .b = x, .c = dw}, scratch);
  }
  double flops() const noexcept { return flops_; }

 private:
  const ThreadPool& pool_;
  ops::MatmulEngine engine_;
  ops::GemmSpec forward_, input_, weight_;
  Bytes x_, w_, y_;
  Arena arena_;
  double flops_;
};

// Small and large layers, each as often as it takes for both to weigh by their work: the figure, and each class of shapes.
void measure_products(const ThreadPool& pool, const Sampling& sampling, DType dtype, const std::string& name,
                      std::vector<Measurement>& measurements) {
  constexpr std::array<std::array<std::int64_t, 3>, 3> shapes = {{{512, 576, 1536}, {512, 1024, 2048}, {512, 2048, 2048}}};
  std::vector<double> seconds(static_cast<std::size_t>(sampling.samples));
  std::vector<Measurement> classes;
  double flops = 0;
  for (const auto& [n, in, out] : shapes) {  // one at a time, for the sake of memory
    Products layer(pool, dtype, n, in, out);
    const std::vector<double> each = seconds_of_each(sampling, [&] { layer.run(); });
    seconds.resize(std::min(seconds.size(), each.size()));
    for (std::size_t i = 0; i < seconds.size(); ++i) seconds[i] += each[i];
    flops += layer.flops();
    classes.push_back(measured(name, layer.flops(), each));
    classes.back().of = fmt::format("{} x {} x {}", n, in, out);
  }
  measurements.push_back(measured(name, flops, seconds));
  for (Measurement& part : classes) measurements.push_back(std::move(part));
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
  fill(arena.at(0), matrix, dtype);
  fill(arena.at(3 * matrix), matrix, dtype);
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

// State and gradient of `elements` parameters: 16 bytes each.
class Update {
 public:
  Update(const ThreadPool& pool, std::int64_t elements)
      : pool_(pool), elements_(elements), arena_(16 * elements, "probe of memory") {
    arena_.prefault(pool);
  }
  void run() {
    const ExactState state{reinterpret_cast<BFloat16*>(arena_.at(0)), reinterpret_cast<std::int16_t*>(arena_.at(2 * elements_)),
                           array(4), array(8)};
    host_adamw(pool_, {.lr = 1e-4}, {.count = elements_}, source_of(state), array(12), state);
  }
  void pass() { ops::accumulate(pool_, elements_, array(8), array(12)); }
  double update_bytes() const { return 28.0 * static_cast<double>(elements_); }
  double pass_bytes() const { return 12.0 * static_cast<double>(elements_); }

 private:
  float* array(Bytes bytes_before) const { return reinterpret_cast<float*>(arena_.at(bytes_before * elements_)); }
  const ThreadPool& pool_;
  std::int64_t elements_;
  Arena arena_;
};

// Speeds of products and of updates beside one another, as shares of their speeds alone.
void measure_shared(const ThreadPool& pool, const Sampling& sampling, std::vector<Measurement>& measurements) {
  Products layer(pool, DType::bfloat16, 512, 1024, 1024);
  const ThreadPool update_pool(pool.threads(), PoolPriority::high);  // as the update lane has
  Update update(update_pool, 2 << 20);                               // 32 MiB
  const double products_alone_per_s = measured("", 1, seconds_of_each(sampling, [&] { layer.run(); })).middle,
               updates_alone_per_s = measured("", 1, seconds_of_each(sampling, [&] { update.run(); })).middle;
  std::vector<double> compute_shares, update_shares;
  for (int pass = 0; pass < sampling.passes; ++pass) {
    std::atomic<bool> stop{false};
    double updates_per_s = 0;
    std::thread other([&] {
      int updates = 0;
      const double seconds = seconds_of([&] {
        for (; !stop.load(std::memory_order_relaxed) || updates == 0; ++updates) update.run();
      });
      updates_per_s = updates / seconds;
    });
    int runs = 0;
    double seconds = 0;
    for (; seconds < sampling.pass_s; ++runs) seconds += seconds_of([&] { layer.run(); });
    stop.store(true);
    other.join();
    compute_shares.push_back(std::clamp(runs / seconds / products_alone_per_s, 0.05, 1.0));
    update_shares.push_back(std::clamp(updates_per_s / updates_alone_per_s, 0.05, 1.0));
  }
  measurements.push_back(middle_of("shared_compute", compute_shares));
  measurements.push_back(middle_of("shared_update", update_shares));
}

}  // namespace

std::vector<Measurement> measure_compute(const ThreadPool& pool, const Sampling& sampling) {
  std::vector<Measurement> measurements;
  measure_products(pool, sampling, DType::bfloat16, "gemm_bf16_flops", measurements);
  measure_products(pool, sampling, DType::float32, "gemm_fp32_flops", measurements);
  measurements.push_back(attention<BFloat16>(pool, sampling, "attention_bf16_flops"));
  measurements.push_back(attention<float>(pool, sampling, "attention_fp32_flops"));
  {
    Update update(pool, 3 << 20);  // 48 MiB: beyond the caches
    measurements.push_back(measured("memory_bytes", update.pass_bytes(), seconds_of_each(sampling, [&] { update.pass(); })));
    measurements.push_back(measured("update_bytes", update.update_bytes(), seconds_of_each(sampling, [&] { update.run(); })));
  }
  measure_shared(pool, sampling, measurements);
  return measurements;
}

}  // namespace spillway
