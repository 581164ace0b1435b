// Measures the matrix products of one training step of a model, each alone: the time that the step would take if it did nothing
// else. `calls` is how often a step runs the product; `GFLOP` is the work of one call. oneDNN's own product stands beside ours,
// in one call on all threads. Products are cut where the model itself is cut (MLP columns, vocabulary tiles, strips of logits);
// gradients of weights are written, as in a step of one micro-batch. tools/bench/speed_of_light.py adds them up.
// Usage: step_gemms_bench [MODEL BATCH SEQUENCE [THREADS]] [--benchmark_...]
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "memory/base/parallel.h"
#include "memory/runtime/arena.h"
#include "models/build.h"
#include "models/catalogue/catalogue.h"
#include "models/cpu/ops.h"
#include "tools/bench/library_product.h"

namespace spillway {
namespace {

using ops::GemmSpec;
using ops::Store;
using ops::Transpose;

struct StepProduct {
  std::string name;
  GemmSpec spec;
  double calls = 0;  // in a step
};

// The pieces into which a length is cut: pieces of full size, and a last one.
struct Piece {
  std::int64_t length = 0;
  double count = 0;
};
std::vector<Piece> pieces(std::int64_t length, std::int64_t cut) {
  std::vector<Piece> found;
  if (length >= cut) found.push_back({cut, static_cast<double>(length / cut)});
  if (length % cut != 0) found.push_back({length % cut, 1});
  return found;
}

class Step {
 public:
  Step(const ModelConfig& config, std::int64_t n) : n_(n) {
    const Cuts cuts = canonical_cuts(config);
    const auto layers = static_cast<double>(config.layers);
    const std::int64_t qkv = (config.heads + 2 * config.kv_heads) * config.head_dim, o = config.heads * config.head_dim;
    const std::int64_t up = config.family->gated_mlp ? 2 : 1;
    add_linear("qkv", config.hidden, qkv, layers);
    add_linear("output", o, config.hidden, layers);
    for (const Piece& piece : pieces(config.mlp_width, cuts.mlp_columns)) {
      add_linear("up", config.hidden, up * piece.length, layers * piece.count);
      add_linear("down", piece.length, config.hidden, layers * piece.count);
    }
    for (const Piece& tile : pieces(config.vocab, cuts.vocabulary_rows)) {
      for (const Piece& strip : pieces(n, cuts.head_strip))
        add_head(config.hidden, tile.length, strip.length, tile.count * strip.count);
    }
  }

  const std::vector<StepProduct>& products() const { return products_; }

 private:
  static constexpr DType kType = DType::bfloat16;

  void add(const std::string& name, const GemmSpec& spec, double calls) {
    for (StepProduct& product : products_) {
      if (product.spec == spec) {
        product.calls += calls;
        return;
      }
    }
    products_.push_back({name, spec, calls});
  }
  void add_linear(const std::string& name, std::int64_t in, std::int64_t out, double calls) {
    const std::string sizes = name + ":" + std::to_string(in) + "x" + std::to_string(out);
    add(sizes + "/forward", ops::linear_forward(kType, n_, in, out), calls);
    add(sizes + "/input_gradient", ops::linear_input_gradient(kType, n_, in, out, kType), calls);
    add(sizes + "/weight_gradient", ops::linear_weight_gradient(kType, n_, in, out, Store::write), calls);
  }
  void add_head(std::int64_t hidden, std::int64_t rows_of_tile, std::int64_t strip, double calls) {
    const std::string sizes = "head:" + std::to_string(hidden) + "x" + std::to_string(rows_of_tile);
    add(sizes + "/forward", ops::linear_forward(kType, strip, hidden, rows_of_tile), calls);
    add(sizes + "/input_gradient", ops::linear_input_gradient(kType, strip, hidden, rows_of_tile, DType::float32, Store::add),
        calls);
    add(sizes + "/weight_gradient", ops::linear_weight_gradient(kType, strip, hidden, rows_of_tile, Store::add), calls);
  }

  std::int64_t n_;
  std::vector<StepProduct> products_;
};

// Operands and scratch of one product, on huge pages as in training.
struct Operands {
  Operands(const GemmSpec& spec, Bytes scratch_bytes)
      : a_bytes(
            round_up((spec.transpose_a == Transpose::yes ? spec.k : spec.m) * spec.lda * size_of(spec.input), kExtentAlignment)),
        b_bytes(
            round_up((spec.transpose_b == Transpose::yes ? spec.n : spec.k) * spec.ldb * size_of(spec.input), kExtentAlignment)),
        c_bytes(round_up(spec.m * spec.ldc * size_of(spec.output), kExtentAlignment)),
        arena(round_up(a_bytes + b_bytes + c_bytes + scratch_bytes + 1, kExtentAlignment), "bench") {
    std::memset(arena.data(), 0x3c, static_cast<std::size_t>(arena.bytes()));  // finite in both types
  }
  std::byte* a() const { return arena.data(); }
  std::byte* b() const { return arena.data() + a_bytes; }
  std::byte* c() const { return arena.data() + a_bytes + b_bytes; }
  std::byte* scratch() const { return arena.data() + a_bytes + b_bytes + c_bytes; }

  Bytes a_bytes, b_bytes, c_bytes;
  Arena arena;
};

void report(benchmark::State& state, const StepProduct& product) {
  const GemmSpec& spec = product.spec;
  state.counters["calls"] = product.calls;
  state.counters["GFLOP"] = 2e-9 * static_cast<double>(spec.m) * static_cast<double>(spec.n) * static_cast<double>(spec.k);
}

void run_ours(benchmark::State& state, const StepProduct& product, int threads) {
  const ThreadPool pool(threads);
  ops::MatmulEngine engine(threads);
  const Operands operands(product.spec, engine.scratch_bytes(product.spec));
  for ([[maybe_unused]] auto _ : state)
    engine.run(pool, product.spec, {.a = operands.a(), .b = operands.b(), .c = operands.c()}, operands.scratch());
  report(state, product);
}

// On a processor that does not multiply bf16, the library has only fp32 products, which are then the limit.
GemmSpec of_library(GemmSpec spec) {
  if (ops::instructions_here() == Instructions::widened) spec.input = spec.output = DType::float32;
  return spec;
}

void run_library(benchmark::State& state, const StepProduct& product, int threads) {
  const GemmSpec spec = of_library(product.spec);
  const Operands operands(spec, 0);
  if (time_library_product(state, spec, threads, {operands.a(), operands.b(), operands.c()})) report(state, product);
}

double best(const std::vector<double>& times) { return *std::min_element(times.begin(), times.end()); }

void add(const StepProduct& product, const char* whose, void (*run)(benchmark::State&, const StepProduct&, int), int threads) {
  const std::string name = product.name + "/" + whose + "/threads:" + std::to_string(threads);
  auto* bench = benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) { run(state, product, threads); });
  bench->Repetitions(7)->ComputeStatistics("best", best)->ReportAggregatesOnly()->Unit(benchmark::kMillisecond)->MinTime(0.02);
  // Other programs do not disturb one thread's CPU time; several threads can only be measured by the clock.
  if (threads > 1) bench->UseRealTime();
}

void add_model(const std::string& model, std::int64_t batch, std::int64_t sequence, int threads) {
  const Step step(resolve_model(model).config, batch * sequence);
  for (const StepProduct& product : step.products()) {
    for (const int count : threads > 1 ? std::vector<int>{1, threads} : std::vector<int>{1}) {
      add(product, "ours", run_ours, count);
      add(product, "library", run_library, count);
    }
  }
}

}  // namespace
}  // namespace spillway

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (argc >= 4) {
    spillway::add_model(argv[1], std::stoll(argv[2]), std::stoll(argv[3]), argc > 4 ? std::stoi(argv[4]) : 2);
  } else {
    spillway::add_model("smollm2-135m", 4, 512, 2);
  }
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
