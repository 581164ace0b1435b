// Units of a model on the CPU, a pass each: what a step is made of. `gemm` is the rate of the matrix products if the pass did
// nothing else: beside gemm_bench it shows what norms, attention and passes over memory cost. One layer is enough, as all
// layers are alike; repetitions are reduced to the best one, because a shared machine only ever makes a pass slower.
// Usage: units_bench [MODEL BATCH SEQUENCE] [--benchmark_...]
#include <benchmark/benchmark.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "memory/arena.h"
#include "memory/parallel.h"
#include "models/build.h"
#include "models/catalogue/catalogue.h"
#include "models/ops.h"
#include "models/weights_io.h"

namespace spillway {
namespace {

constexpr int kThreads = 2;

// Everything in memory of its own, as in core.
class Step {
 public:
  Step(const std::string& name, std::int64_t batch, std::int64_t sequence, HeadMode head) : pool_(kThreads), engine_(kThreads) {
    ModelConfig config = catalogue_config(name);
    config.layers = 1;
    config.windows.resize(1);
    model_ = build_model(config, {DType::bfloat16, batch, sequence, head, pool_, engine_});
    Bytes workspace = 0;
    for (const Value& value : graph().values) values_.push_back(reserve(value.bytes));
    for (const ParameterBlock& block : graph().blocks) {
      weights_.push_back(reserve(2 * block.elements));
      gradients_.push_back(reserve(4 * block.elements));
    }
    for (const Unit& unit : graph().units) workspace = std::max({workspace, unit.forward_workspace, unit.backward_workspace});
    workspace_ = reserve(workspace);
    for (std::size_t b = 0; b < weights_.size(); ++b) {
      std::vector<float> drawn(static_cast<std::size_t>(graph().blocks[b].elements));
      initial_block_range(config, graph().blocks[b], 1, 0, drawn);
      ops::cast_from_float(pool_, graph().blocks[b].elements, drawn.data(), reinterpret_cast<BFloat16*>(weights_[b]));
    }
    for (std::int64_t i = 0; i < graph().rows; ++i) tokens_.push_back(static_cast<std::int32_t>(i * 7919 % config.vocab));
    for (std::size_t u = 0; u < graph().units.size(); ++u) run(u, &UnitOps::forward);
    for (std::size_t u = graph().units.size(); u-- > 0;) run(u, &UnitOps::backward);
  }

  const UnitGraph& graph() const { return model_.graph; }

  void run(std::size_t u, void (UnitOps::*pass)(const UnitCall&)) {
    const Unit& unit = graph().units[u];
    std::vector<std::byte*> values;
    std::vector<const std::byte*> weights;
    std::vector<float*> gradients;
    for (const ValueUse& use : pass == &UnitOps::forward ? unit.forward : unit.backward) {
      values.push_back(values_[static_cast<std::size_t>(use.value)]);
    }
    for (const int block : unit.blocks) weights.push_back(weights_[static_cast<std::size_t>(block)]);
    for (const int block : unit.gradient_blocks) {
      gradients.push_back(reinterpret_cast<float*>(gradients_[static_cast<std::size_t>(block)]));
    }
    double loss = 0;
    UnitCall call;
    call.values = values;
    call.weights = weights;
    call.gradients = gradients;
    call.workspace = workspace_;
    call.tokens = call.targets = tokens_.data();
    call.loss_sum = &loss;
    call.loss_scale = 1.0f / static_cast<float>(graph().rows);
    (model_.ops[u].get()->*pass)(call);
  }

 private:
  std::byte* reserve(Bytes bytes) {
    arenas_.push_back(std::make_unique<Arena>(round_up(bytes + 1, kExtentAlignment), "bench"));
    arenas_.back()->prefault(pool_);
    return arenas_.back()->data();
  }

  ThreadPool pool_;
  ops::MatmulEngine engine_;
  CompiledModel model_;
  std::vector<std::unique_ptr<Arena>> arenas_;
  std::vector<std::byte*> values_, weights_, gradients_;
  std::byte* workspace_ = nullptr;
  std::vector<std::int32_t> tokens_;  // [n], its own targets
};

double best(const std::vector<double>& times) { return *std::min_element(times.begin(), times.end()); }

void add_pass(const std::shared_ptr<Step>& step, std::size_t u, void (UnitOps::*pass)(const UnitCall&)) {
  const Unit& unit = step->graph().units[u];
  const bool is_forward = pass == &UnitOps::forward;
  const Work work = is_forward ? unit.forward_work : unit.backward_work;
  const std::string name = unit.name + (is_forward ? " forward" : " backward");
  benchmark::RegisterBenchmark(name.c_str(),
                               [=](benchmark::State& state) {
                                 for ([[maybe_unused]] auto _ : state) step->run(u, pass);
                                 const auto rate = benchmark::Counter::kIsIterationInvariantRate;
                                 state.counters["gemm"] = benchmark::Counter(work.gemm_flops, rate, benchmark::Counter::kIs1000);
                                 state.counters["attention"] =
                                     benchmark::Counter(work.attention_flops, rate, benchmark::Counter::kIs1000);
                               })
      ->Unit(benchmark::kMillisecond)
      ->UseRealTime()
      ->Repetitions(3)
      ->ReportAggregatesOnly(true)
      ->ComputeStatistics("best", best);
}

void add_model(const std::string& name, std::int64_t batch, std::int64_t sequence) {
  const auto step = std::make_shared<Step>(name, batch, sequence, HeadMode::fused);
  for (std::size_t u = 0; u < step->graph().units.size(); ++u) {
    if (step->graph().units[u].role == ForwardRole::computes) add_pass(step, u, &UnitOps::forward);
    add_pass(step, u, &UnitOps::backward);
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
