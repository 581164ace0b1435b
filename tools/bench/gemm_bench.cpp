// Measures the matrix products of training: our slices on our threads, beside the library alone on the whole product with one
// thread. `GFLOP/s` is the total; divide it by the threads for the share of `peak`. Only the best repetition counts, because
// other programs on a shared machine only ever make a product slower.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "memory/base/parallel.h"
#include "models/cpu/ops.h"
#include "tools/bench/library_product.h"

namespace spillway {
namespace {

using ops::GemmSpec;
using ops::Store;
using ops::Transpose;

struct Memory {
  explicit Memory(Bytes bytes) {
    constexpr std::size_t kHugePage = 2u << 20;
    const std::size_t size = (static_cast<std::size_t>(bytes) + kHugePage - 1) / kHugePage * kHugePage;
    data.reset(static_cast<std::byte*>(std::aligned_alloc(kHugePage, size)));
    std::memset(data.get(), 0x3c, size);  // finite in both types
  }
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  std::unique_ptr<std::byte, Free> data;
};

struct Operands {
  explicit Operands(const GemmSpec& spec)
      : a((spec.transpose_a == Transpose::yes ? spec.k : spec.m) * spec.lda * size_of(spec.input)),
        b((spec.transpose_b == Transpose::yes ? spec.n : spec.k) * spec.ldb * size_of(spec.input)),
        c(spec.m * spec.ldc * size_of(spec.output)),
        residual(spec.m * spec.n * size_of(spec.input)) {}
  Memory a, b, c, residual;
};

void report(benchmark::State& state, const GemmSpec& spec) {
  state.counters["GFLOP/s"] =
      benchmark::Counter(2e-9 * static_cast<double>(spec.m) * static_cast<double>(spec.n) * static_cast<double>(spec.k),
                         benchmark::Counter::kIsIterationInvariantRate);
}

void run_sliced(benchmark::State& state, const GemmSpec& spec, int threads) {
  const ThreadPool pool(threads);
  ops::MatmulEngine engine(threads);
  const Operands operands(spec);
  const Memory scratch(engine.scratch_bytes(spec));
  for ([[maybe_unused]] auto _ : state) {
    engine.run(pool, spec,
               {operands.a.data.get(), operands.b.data.get(), operands.c.data.get(), operands.residual.data.get(),
                operands.residual.data.get()},
               scratch.data.get());
  }
  report(state, spec);
}

void run_library(benchmark::State& state, const GemmSpec& spec) {
  const Operands operands(spec);
  if (time_library_product(state, spec, 1, {operands.a.data.get(), operands.b.data.get(), operands.c.data.get()}))
    report(state, spec);
}

benchmark::internal::Benchmark* best_of_five(benchmark::internal::Benchmark* bench) {
  const auto most = [](const std::vector<double>& values) { return *std::max_element(values.begin(), values.end()); };
  return bench->Repetitions(5)->ComputeStatistics("best", most)->ReportAggregatesOnly()->Unit(benchmark::kMillisecond);
}

void add(const std::string& name, const GemmSpec& spec) {
  for (const int threads : {1, 2}) {
    auto* bench = benchmark::RegisterBenchmark((name + "/threads:" + std::to_string(threads)).c_str(),
                                               [spec, threads](benchmark::State& state) { run_sliced(state, spec, threads); });
    best_of_five(bench)->MinTime(0.1);
    // Other programs do not disturb one thread's CPU time; two threads can only be measured by the clock.
    if (threads > 1) bench->UseRealTime();
  }
  best_of_five(benchmark::RegisterBenchmark((name + "/library_alone").c_str(), [spec](benchmark::State& state) {
    run_library(state, spec);
  }))->MinTime(0.1);
}

void add_linear(const std::string& model, const std::string& layer, DType type, std::int64_t n, std::int64_t in,
                std::int64_t out) {
  const std::string name = model + "/" + layer;
  add(name + "/forward", ops::linear_forward(type, n, in, out));
  add(name + "/input_gradient", ops::linear_input_gradient(type, n, in, out, type));
  add(name + "/weight_gradient", ops::linear_weight_gradient(type, n, in, out, Store::add));
}

void add_model(const std::string& model, DType type, std::int64_t n, std::int64_t hidden, std::int64_t qkv, std::int64_t mlp,
               std::int64_t vocabulary_tile) {
  add_linear(model, "qkv", type, n, hidden, qkv);
  add_linear(model, "output", type, n, hidden, hidden);
  add_linear(model, "gate_up", type, n, hidden, 2 * mlp);
  add_linear(model, "down", type, n, mlp, hidden);
  add(model + "/head/forward", ops::linear_forward(type, n, hidden, vocabulary_tile));
  add(model + "/head/input_gradient", ops::linear_input_gradient(type, n, hidden, vocabulary_tile, DType::float32, Store::add));
  add(model + "/head/weight_gradient", ops::linear_weight_gradient(type, n, hidden, vocabulary_tile, Store::add));
}

}  // namespace
}  // namespace spillway

int main(int argc, char** argv) {
  using spillway::DType;
  spillway::add("peak/2048", spillway::ops::linear_forward(DType::bfloat16, 2048, 2048, 2048));
  spillway::add_model("smollm2_135m", DType::bfloat16, 2048, 576, 960, 1536, 8192);
  spillway::add_model("llama_1.2b", DType::bfloat16, 512, 2048, 3072, 5632, 8192);
  spillway::add("llama_1.2b/gate_up_8192/forward", spillway::ops::linear_forward(DType::bfloat16, 512, 2048, 16384));
  spillway::add("fp32/2048", spillway::ops::linear_forward(DType::float32, 2048, 2048, 2048));
  spillway::add("fp32/2048/weight_gradient",
                spillway::ops::linear_weight_gradient(DType::float32, 2048, 2048, 2048, spillway::ops::Store::add));
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
