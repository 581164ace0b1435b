// Measures the cost of the search for a plan, including the model, for shapes of the catalogue under realistic budgets: CPU
// seconds of all threads; `two_cores_s`, its duration if each of its two threads has a core; and the step that the plan predicts,
// so that a cheaper search can be compared with the one before. Rows named /exact and /compact have few tokens, so that the drive
// binds.
// Usage: planning_bench [--benchmark_filter=SHAPE]
#include <benchmark/benchmark.h>
#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "memory/base/freed_memory.h"
#include "memory/search/planner.h"
#include "tools/bench/cpu_seconds.h"
#include "trainer/machine/profile_file.h"
#include "trainer/options/options.h"
#include "trainer/options/raw_flags.h"
#include "trainer/options/resolve_options.h"
#include "trainer/plan/budgets.h"
#include "trainer/plan/plan_request.h"
#include "trainer/plan/prepared_model.h"

namespace spillway {
namespace {

// Runs both parts one after the other and counts the time that two cores would save: other programs disturb CPU seconds least.
struct TwoCores {
  double saved_s = 0;
  void operator()(const std::function<void()>& first, const std::function<void()>& second) {
    const double begin_s = cpu_seconds();
    first();
    const double between_s = cpu_seconds();
    second();
    saved_s += std::min(between_s - begin_s, cpu_seconds() - between_s);
  }
};

struct Case {
  std::string_view shape, profile;
  int gib = 1, micro_batches = 1, ranks = 1;
  std::string_view drive_bound_state = "";  // if set: few tokens, no clipping, one slot: updates in the backward
};

void plan(benchmark::State& state, const Case& of) {
  RawFlags flags;
  flags.given = {{"model", {std::string(of.shape)}},
                 {"seq-length", {"1024"}},
                 {"micro-batch-size", {"1"}},
                 {"global-batch-size", {std::to_string(of.micro_batches * of.ranks)}},
                 {"device", {"cpu"}},
                 {"device-memory", {fmt::format("{}GiB", of.gib)}},
                 {"nvme", {"/nvme=100TiB"}},
                 {"ranks", {std::to_string(of.ranks)}},
                 {"zero-stage", {"3"}},
                 {"profile", {std::string(of.profile)}}};
  if (!of.drive_bound_state.empty()) {
    flags.given["seq-length"] = {"128"};
    flags.given["clip-grad"] = {"0"};
    flags.given["durability"] = {"checkpoint"};
    flags.given["state"] = {std::string(of.drive_bound_state)};
  }
  const RunOptions options = resolve_options(flags).options;
  for ([[maybe_unused]] auto _ : state) {
    const FreedMemoryKept freed_memory;
    TwoCores cores;
    const double begin_s = cpu_seconds();
    const PreparedModel model(options, Where::anywhere);
    const MachineProfile machine = profile_named(std::string(of.profile));
    const PlanRequest request = plan_request(options, budgets_of(machine, options));
    const PlanOutcome outcome = make_plan(model.graphs(), machine, request, std::ref(cores));
    state.counters["two_cores_s"] = cpu_seconds() - begin_s - cores.saved_s;
    state.counters["plans"] = outcome.plans_built;
    if (!outcome.plan) {
      state.counters["lacks"] = static_cast<double>(outcome.needed - outcome.budget);
      continue;
    }
    state.counters["operations"] = static_cast<double>(outcome.plan->step.ops.size());
    state.counters["step_s"] = outcome.prediction.step_s;
    state.counters["bound_s"] = outcome.prediction.bound.of_step().seconds;
  }
}

void add(const Case& of) {
  std::string name = fmt::format("{}/{}GiB/{}x{}", of.shape, of.gib, of.ranks, of.micro_batches);
  if (!of.drive_bound_state.empty()) name += fmt::format("/{}", of.drive_bound_state);
  benchmark::RegisterBenchmark(name.c_str(), plan, of)->Iterations(1)->MeasureProcessCPUTime()->Unit(benchmark::kMillisecond);
}

void add_all() {
  constexpr std::string_view shapes[] = {"gpt2",         "smollm2-135m",  "llama-3.2-1b",  "qwen3-4b",
                                         "llama-3.1-8b", "qwen3-32b",     "llama-3.1-70b", "llama-3.1-405b",
                                         "mixtral-8x7b", "qwen3-30b-a3b", "mixtral-8x22b", "qwen3-235b-a22b"};
  for (const std::string_view shape : shapes) {
    for (const int micro_batches : {1, 8}) {
      for (const int gib : {1, 8, 16, 24, 80}) add({shape, "laptop", gib, micro_batches});
      for (const int gib : {8, 80}) add({shape, "h100-node-8", gib, micro_batches, 8});
      for (const int gib : {1, 2, 8, 24}) {
        for (const std::string_view state : {"exact", "compact"}) add({shape, "laptop", gib, micro_batches, 1, state});
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
