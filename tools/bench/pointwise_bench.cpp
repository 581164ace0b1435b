// Measures element-wise kernels of training at SmolLM2-135M's shape (4 x 512 tokens), in bytes read and written a second, beside
// a plain copy of as many bytes in the same run. One thread, its CPU time, the best repetition: other programs disturb this
// least.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "memory/base/parallel.h"
#include "memory/plan/square_tree.h"
#include "models/cpu/ops.h"

namespace spillway {
namespace {

using E = BFloat16;
using ops::Store;

constexpr std::int64_t n = 2048, H = 576, I = 1536, V = 49152, kTile = 8192, D = 64, Hq = 9, Hkv = 3;
constexpr std::int64_t kQkv = (Hq + 2 * Hkv) * D, kQk = (Hq + Hkv) * D;

template <typename T>
std::vector<T> filled(std::int64_t count, float step = 0.001f) {
  std::vector<T> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = from_float<T>(step * static_cast<float>(i % 1999) - step * 1000);
  return values;
}

// `bytes`: bytes that the kernel must read and write, each operand once.
void add(const std::string& name, Bytes bytes, const std::function<void()>& body) {
  const auto most = [](const std::vector<double>& values) { return *std::max_element(values.begin(), values.end()); };
  const auto finish = [&](benchmark::internal::Benchmark* bench) {
    bench->Repetitions(5)->ComputeStatistics("best", most)->ReportAggregatesOnly()->Unit(benchmark::kMicrosecond)->MinTime(0.05);
  };
  const auto measure = [bytes](benchmark::State& state, const std::function<void()>& run) {
    for ([[maybe_unused]] auto _ : state) run();
    state.counters["GB/s"] = benchmark::Counter(1e-9 * static_cast<double>(bytes), benchmark::Counter::kIsIterationInvariantRate);
  };
  finish(benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) { measure(state, body); }));
  finish(benchmark::RegisterBenchmark((name + "/plain_copy").c_str(), [=](benchmark::State& state) {
    std::vector<std::byte> from(static_cast<std::size_t>(bytes / 2), std::byte{1}), to(from.size());
    measure(state, [&] {
      std::copy(from.begin(), from.end(), to.begin());
      benchmark::DoNotOptimize(to.data());
      benchmark::ClobberMemory();
    });
  }));
}

// All operands, alive while the benchmarks run.
struct Operands {
  std::vector<E> x = filled<E>(n * H), y = x, dx = x, weight = filled<E>(H);
  std::vector<E> gu = filled<E>(n * 2 * I), dgu = gu, h = filled<E>(n * I), dh = h;
  std::vector<E> qkv = filled<E>(n * kQkv), dqkv = qkv, qk = filled<E>(n * kQk), head_weight = filled<E>(D);
  std::vector<E> logits = filled<E>(n * kTile), table = filled<E>(V * H);
  std::vector<float> rstd = filled<float>(n), mean = rstd, dweight = filled<float>(H), dbias = dweight,
                     wide = filled<float>(n * H);
  std::vector<float> cosine = filled<float>(512 * D / 2), sine = cosine, head_gradient = filled<float>(2 * D);
  std::vector<float> maximum = rstd, sum = rstd, target = rstd, log_sum_exp = std::vector<float>(n, 10.0f);
  std::vector<float> dtable = filled<float>(kTile * H);
  std::vector<std::int32_t> tokens;
  std::vector<std::byte> scratch = std::vector<std::byte>(16u << 20);
};

void add_of_layers(const ThreadPool& pool, Operands& o) {
  add("rmsnorm_forward", 2 * n * H * 2,
      [&] { ops::rmsnorm_forward<E>(pool, n, H, o.x.data(), o.weight.data(), 1e-5f, o.y.data(), o.rstd.data()); });
  add("rmsnorm_backward", 4 * n * H * 2, [&] {
    ops::rmsnorm_backward<E, E>(pool, n, H, o.y.data(), o.x.data(), o.weight.data(), o.rstd.data(), o.dh.data(), o.dx.data(),
                                o.dweight.data(), Store::add, o.scratch.data());
  });
  add("layernorm_forward", 2 * n * H * 2, [&] {
    ops::layernorm_forward<E>(pool, n, H, o.x.data(), o.weight.data(), o.weight.data(), 1e-5f, o.y.data(), o.mean.data(),
                              o.rstd.data());
  });
  add("layernorm_backward", 4 * n * H * 2, [&] {
    ops::layernorm_backward<E, E>(pool, n, H, o.y.data(), o.x.data(), o.weight.data(), o.mean.data(), o.rstd.data(), o.dh.data(),
                                  o.dx.data(), o.dweight.data(), o.dbias.data(), Store::add, o.scratch.data());
  });
  static constexpr ops::RopeShape shape{.n = n, .sequence = 512, .heads = Hq, .kv_heads = Hkv, .dimension = D, .epsilon = 1e-6f};
  const ops::RopeTable table{o.cosine.data(), o.sine.data()};
  const ops::HeadNorm<E> norm{o.head_weight.data(), o.head_weight.data()};
  add("rope_forward", 2 * n * kQk * 2,
      [&pool, &o, table] { ops::rope_forward<E>(pool, shape, table, {}, o.qkv.data(), o.qk.data()); });
  add("rope_backward", 2 * n * kQk * 2, [&pool, &o, table] {
    ops::rope_backward<E>(pool, shape, table, {}, nullptr, o.dqkv.data(), nullptr, nullptr, Store::add, nullptr);
  });
  add("head_norm_rope_forward", 2 * n * kQk * 2,
      [&pool, &o, table, norm] { ops::rope_forward<E>(pool, shape, table, norm, o.qkv.data(), o.qk.data()); });
  add("head_norm_rope_backward", 3 * n * kQk * 2, [&pool, &o, table, norm] {
    ops::rope_backward<E>(pool, shape, table, norm, o.qkv.data(), o.dqkv.data(), o.head_gradient.data(),
                          o.head_gradient.data() + D, Store::add, o.scratch.data());
  });
  static constexpr auto kGate = Activation::silu;
  add("swiglu_forward", 3 * n * I * 2, [&] { ops::gated_forward<E>(pool, kGate, n, I, o.gu.data(), o.h.data()); });
  add("swiglu_backward", 6 * n * I * 2,
      [&] { ops::gated_backward<E>(pool, kGate, n, I, o.dh.data(), o.gu.data(), o.dgu.data(), o.h.data()); });
  for (const Activation kind : {Activation::gelu_tanh, Activation::gelu_erf}) {
    const std::string name = kind == Activation::gelu_tanh ? "gelu_tanh" : "gelu_exact";
    add(name + "_forward", 2 * n * I * 2,
        [&pool, &o, kind] { ops::gelu_forward<E>(pool, kind, n * I, o.gu.data(), o.h.data()); });
    add(name + "_backward", 4 * n * I * 2,
        [&pool, &o, kind] { ops::gelu_backward<E>(pool, kind, n * I, o.dh.data(), o.gu.data(), o.dgu.data(), o.h.data()); });
  }
  add("add", 3 * n * H * 2, [&] { ops::add<E>(pool, n * H, o.x.data(), o.dx.data(), o.y.data()); });
  add("cast_from_float", n * H * 6, [&] { ops::cast_from_float<E>(pool, n * H, o.wide.data(), o.y.data()); });
  add("column_sums", n * H * 2,
      [&] { ops::column_sums<E>(pool, n, H, o.y.data(), o.dbias.data(), Store::add, o.scratch.data()); });
}

// Sums of squares, where each task has its own sums; the embedding; the loss.
void add_of_vocabulary(const ThreadPool& pool, Operands& o) {
  for (std::int64_t i = 0; i < n; ++i) o.tokens.push_back(static_cast<std::int32_t>(i * 7919 % kTile));
  const auto square = [&pool, &o](const auto& kernel) {
    pool.parallel_for(kTile * H / kSquareTask, [&](std::int64_t task, int) {
      kernel(task * kSquareTask, reinterpret_cast<double*>(o.scratch.data()) + task * kSquareTask / kSquareStretch);
    });
  };
  add("square_nodes", kTile * H * 4, [&o, square] {
    square([&](std::int64_t at, double* sums) {
      ops::square_nodes<float>(kSquareTask, kSquareStretch, o.dtable.data() + at, sums);
    });
  });
  add("round_and_square_nodes", kTile * H * 6, [&o, square] {
    square([&](std::int64_t at, double* sums) {
      ops::round_and_square_nodes<E>(kSquareTask, kSquareStretch, o.dtable.data() + at, o.table.data() + at, sums);
    });
  });
  add("embedding_forward", 2 * n * H * 2,
      [&] { ops::embedding_forward<E>(pool, n, H, o.tokens.data(), {0, V}, o.table.data(), o.y.data()); });
  add("embedding_backward", n * H * 10,
      [&] { ops::embedding_backward<E>(pool, n, H, o.tokens.data(), {0, kTile}, o.x.data(), o.dtable.data(), Store::add); });
  add("loss_tile", n * kTile * 2, [&] {
    ops::loss_tile<E>(pool, n, {0, kTile}, o.logits.data(), kTile, o.tokens.data(),
                      {o.maximum.data(), o.sum.data(), o.target.data()});
  });
  add("loss_gradient_tile", 2 * n * kTile * 2, [&] {
    ops::loss_gradient_tile<E>(pool, n, {0, kTile}, o.logits.data(), kTile, o.tokens.data(), o.log_sum_exp.data(), 1.0f);
  });
}

}  // namespace
}  // namespace spillway

int main(int argc, char** argv) {
  const spillway::ThreadPool pool(1);
  spillway::Operands operands;
  spillway::add_of_layers(pool, operands);
  add_of_vocabulary(pool, operands);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
