// Measures the cost of making a plan, stage by stage, for models of 10 to 1,000 layers: `ns_an_operation` stays about the same if
// a stage takes time in proportion to the plan's operations; `times_least` compares it with the smallest model's. Everything
// rests on NVMe, which makes the most operations. The whole search, which builds many plans, is in planning_bench.cpp.
// Usage: plan_stages_bench [--benchmark_...]
#include <benchmark/benchmark.h>
#include <fmt/core.h>

#include <algorithm>
#include <ctime>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "memory/base/freed_memory.h"
#include "memory/base/parallel.h"
#include "memory/passes/packing.h"
#include "memory/passes/schedule.h"
#include "memory/passes/validate.h"
#include "memory/passes/waits.h"
#include "memory/search/simulate.h"
#include "models/build.h"
#include "models/catalogue/catalogue.h"
#include "trainer/machine/profile_file.h"

namespace spillway {
namespace {

constexpr int kMicroBatches = 2;

struct Outline {
  const char* name;
  bool vertical;
  UpdateTime update;
};
constexpr Outline kOutlines[] = {{"in_next_forward", true, UpdateTime::in_next_forward},
                                 {"horizontal_after", false, UpdateTime::after}};

class Model {
 public:
  explicit Model(int layers) {
    ModelConfig config = catalogue_config("smollm2-135m");
    config.layers = layers;
    config.windows.resize(static_cast<std::size_t>(layers));
    model_ = build_model(config, {DType::bfloat16, 1, 128, HeadMode::tiled});
  }
  const UnitGraph& graph() const { return model_.graph; }

 private:
  CompiledModel model_;
};

Choices choices_of(const UnitGraph& graph, const Outline& outline) {
  Choices choices;
  choices.update = outline.update;
  choices.micro_batches = kMicroBatches;
  set_group(choices, outline.vertical ? choices.micro_batches : 1);
  choices.clip = false;
  choices.ahead = 2 * largest_weights(graph, choices.form);
  choices.blocks.assign(graph.blocks.size(), {Tier::nvme, Tier::nvme, Tier::nvme});
  choices.units.assign(graph.units.size(), {Saved::spill, Boundary::spill});
  return choices;
}

double cpu_seconds() {
  timespec time = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Figures of the smallest model, by stage.
using Least = std::map<std::string, double>;

void add(const std::shared_ptr<Model>& model, int layers, const Outline& outline, const std::shared_ptr<Least>& least) {
  const Choices choices = choices_of(model->graph(), outline);
  const auto plan = std::make_shared<Plan>(build_schedule(model->graph(), choices));
  pack(*plan);
  derive_waits(*plan);
  const auto machine = std::make_shared<MachineProfile>(profile_named("laptop"));
  const std::map<std::string, std::function<void()>> stages = {
      {"build_schedule", [=] { benchmark::DoNotOptimize(build_schedule(model->graph(), choices)); }},
      {"pack", [=] { pack(*plan); }},
      {"derive_waits", [=] { derive_waits(*plan); }},
      {"simulate", [=] { benchmark::DoNotOptimize(seconds_of_step(*plan, model->graph(), *machine)); }},
      {"validate", [=] { validate(*plan, model->graph()); }},
  };
  for (const auto& [stage, work] : stages) {
    const std::string name = fmt::format("{}/{}", outline.name, stage);
    const auto measure = [=, run = work](benchmark::State& state) {
      // CPU seconds, and the best of all repetitions: other programs on the machine only ever make a stage slower.
      double best_s = 1e9;
      for ([[maybe_unused]] auto _ : state) {
        const double begin_s = cpu_seconds();
        run();
        best_s = std::min(best_s, cpu_seconds() - begin_s);
      }
      const double operations = static_cast<double>(plan->step.ops.size());
      const double each_s = best_s / operations;
      state.counters["operations"] = operations;
      state.counters["ns_an_operation"] = each_s * 1e9;
      state.counters["times_least"] = each_s / least->emplace(name, each_s).first->second;
    };
    benchmark::RegisterBenchmark(fmt::format("{}/layers:{}", name, layers).c_str(), measure)
        ->Unit(benchmark::kMillisecond)
        ->Iterations(layers < 100 ? 50 : 8);
  }
}

}  // namespace
}  // namespace spillway

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  const auto least = std::make_shared<spillway::Least>();
  const spillway::FreedMemoryKept freed_memory;  // as in a search
  for (const int layers : {10, 32, 100, 320, 1000}) {
    const auto model = std::make_shared<spillway::Model>(layers);
    for (const spillway::Outline& outline : spillway::kOutlines) spillway::add(model, layers, outline, least);
  }
  benchmark::RunSpecifiedBenchmarks();
}
