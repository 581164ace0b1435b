// Measures units of a model on the CPU, each pass alone: the parts of a step. `gemm` is the rate of the matrix products if the
// pass did nothing else: beside gemm_bench it shows the cost of norms, attention and passes over memory. One layer is enough,
// because all layers are alike. Only the best repetition counts, because other programs on a shared machine only ever make a pass
// slower.
// Usage: units_bench [MODEL BATCH SEQUENCE] [--benchmark_...]
#include <benchmark/benchmark.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "memory/base/parallel.h"
#include "trainer/machine/units_alone.h"

namespace spillway {
namespace {

constexpr int kThreads = 2;

double best(const std::vector<double>& times) { return *std::min_element(times.begin(), times.end()); }

void add_model(const std::string& name, std::int64_t batch, std::int64_t sequence) {
  static const ThreadPool pool(kThreads);
  const auto units = std::make_shared<UnitsAlone>(
      pool, name, UnitsAlone::Shape{.micro_batch = batch, .sequence = sequence, .head = HeadMode::fused}, UnitsAlone::Units::all);
  units->run_all();
  for (const UnitsAlone::Pass& pass : units->passes()) {
    const Work work = units->work_of(pass);
    const std::string title = units->unit_of(pass).name + (pass.forward ? " forward" : " backward");
    const auto run = [=](benchmark::State& state) {
      for ([[maybe_unused]] auto _ : state) units->run(pass);
      const auto rate = benchmark::Counter::kIsIterationInvariantRate;
      state.counters["gemm"] = benchmark::Counter(work.gemm_flops, rate, benchmark::Counter::kIs1000);
      state.counters["attention"] = benchmark::Counter(work.attention_flops, rate, benchmark::Counter::kIs1000);
    };
    benchmark::RegisterBenchmark(title.c_str(), run)
        ->Unit(benchmark::kMillisecond)
        ->UseRealTime()
        ->Repetitions(3)
        ->ReportAggregatesOnly(true)
        ->ComputeStatistics("best", best);
  }
}

}  // namespace
}  // namespace spillway

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (argc == 4) {
    spillway::add_model(argv[1], std::stoll(argv[2]), std::stoll(argv[3]));
  } else {
    spillway::add_model("smollm2-135m", 4, 512);
  }
  benchmark::RunSpecifiedBenchmarks();
}
