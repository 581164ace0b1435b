// What a plan costs to make, model and all, for shapes of the catalogue: processor seconds (of all threads), and beside them the step
// that the plan is predicted to take, so that a cheaper search can be held against the one before. Budgets are shares of the model's
// whole training state: from what barely holds a layer to what nearly holds all.
// Usage: planning_bench [--benchmark_filter=SHAPE]
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "models/catalogue/catalogue.h"
#include "models/config.h"
#include "trainer/options.h"
#include "trainer/prepared_run.h"

namespace spillway {
namespace {

void plan(benchmark::State& state, const std::string& shape, Bytes device, int micro_batches) {
  RawFlags flags;
  flags.given = {{"model", {shape}},
                 {"seq-length", {"1024"}},
                 {"global-batch-size", {std::to_string(micro_batches)}},
                 {"device", {"cpu"}},
                 {"device-memory", {std::to_string(device)}},
                 {"nvme", {"/nvme=100TiB"}},
                 {"profile", {"laptop"}}};
  const RunOptions options = resolve_options(flags).options;
  for ([[maybe_unused]] auto _ : state) {
    const PreparedModel model(options, Where::anywhere);
    const PlannedRun run = plan_run(options, model, Where::anywhere);
    state.counters["plans"] = run.outcome.plans_built;
    if (!run.outcome.plan) {
      state.counters["lacks"] = static_cast<double>(run.outcome.needed - run.outcome.budget);
      continue;
    }
    state.counters["operations"] = static_cast<double>(run.outcome.plan->step.ops.size());
    state.counters["step_s"] = run.outcome.prediction.step_s;
    state.counters["bound_s"] = run.outcome.prediction.bound_s;
  }
}

void add_all() {
  constexpr std::string_view shapes[] = {"gpt2",         "smollm2-135m", "llama-3.2-1b",  "qwen3-4b",
                                         "llama-3.1-8b", "qwen3-32b",    "llama-3.1-70b", "llama-3.1-405b",
                                         "mixtral-8x7b", "qwen3-30b-a3b", "mixtral-8x22b", "qwen3-235b-a22b"};
  for (const std::string_view shape : shapes) {
    const auto state_bytes = static_cast<double>(parameter_count(catalogue_config(shape))) * 12;
    for (const double share : {0.003, 0.05, 0.3}) {
      const auto device = std::max<Bytes>(256 * kMiB, static_cast<Bytes>(share * state_bytes) / kMiB * kMiB);
      for (const int micro_batches : {1, 8}) {
        const std::string name = fmt::format("{}/{}MiB/{}", shape, device / kMiB, micro_batches);
        benchmark::RegisterBenchmark(name.c_str(), plan, std::string(shape), device, micro_batches)
            ->Iterations(1)
            ->MeasureProcessCPUTime()
            ->Unit(benchmark::kMillisecond);
      }
    }
  }
}

}  // namespace
}  // namespace spillway

int main(int argc, char** argv) {
  spillway::add_all();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
}
