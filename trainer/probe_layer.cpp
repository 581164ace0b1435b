#include "trainer/probe_layer.h"

#include <algorithm>
#include <utility>

#include "models/build.h"
#include "models/catalogue/catalogue.h"
#include "trainer/probe_work.h"

namespace spillway {
namespace {

ModelConfig one_layer(std::string_view model) {
  ModelConfig config = catalogue_config(model);
  config.layers = 1;
  config.windows.resize(1);
  return config;
}

}  // namespace

ProbedLayer::ProbedLayer(const ThreadPool& pool, std::string_view model, DType dtype, std::int64_t rows)
    : engine_(pool.threads()),
      model_(build_model(one_layer(model), {.dtype = dtype, .micro_batch = 1, .sequence = rows, .pool = pool, .engine = engine_})),
      values_(graph().values.size(), -1),
      weights_(graph().blocks.size(), -1),
      gradients_(graph().blocks.size(), -1),
      tokens_(static_cast<std::size_t>(rows)) {
  for (int u = 0; u < static_cast<int>(graph().units.size()); ++u) {
    if (graph().units[u].name.starts_with("layer")) passes_.push_back({u, true});
  }
  for (std::size_t i = passes_.size(); i-- > 0;) passes_.push_back({passes_[i].unit, false});
  Bytes end = 0, scratch = 0;
  const auto place = [&](Bytes& at, Bytes bytes) {
    if (at < 0) at = std::exchange(end, end + round_up(bytes, kExtentAlignment));
  };
  for (const Pass& pass : passes_) {
    const Unit& unit = unit_of(pass);
    for (const ValueUse& use : pass.forward ? unit.forward : unit.backward) place(values_[use.value], graph().values[use.value].bytes);
    for (const int block : unit.blocks) place(weights_[block], graph().blocks[block].elements * size_of(dtype));
    for (const int block : unit.gradient_blocks) place(gradients_[block], graph().blocks[block].elements * 4);
    scratch = std::max({scratch, unit.forward_workspace, unit.backward_workspace});
  }
  workspace_ = end;
  arena_.emplace(end + scratch, "probe of a layer");
  arena_->prefault(pool);
  for (std::size_t b = 0; b < weights_.size(); ++b) {
    if (weights_[b] >= 0) fill_for_probe(arena_->at(weights_[b]), graph().blocks[b].elements * size_of(dtype), dtype);
  }
  for (std::size_t v = 0; v < values_.size(); ++v) {
    if (values_[v] >= 0) fill_for_probe(arena_->at(values_[v]), graph().values[v].bytes, dtype);
  }
}

void ProbedLayer::run() {
  for (const Pass& pass : passes_) run(pass);
}

Work ProbedLayer::work() const {
  Work work;
  for (const Pass& pass : passes_) work += pass.forward ? unit_of(pass).forward_work : unit_of(pass).backward_work;
  return work;
}

void ProbedLayer::run(const Pass& pass) {
  const Unit& unit = unit_of(pass);
  std::vector<std::byte*> values;
  std::vector<const std::byte*> weights;
  std::vector<float*> gradients;
  for (const ValueUse& use : pass.forward ? unit.forward : unit.backward) values.push_back(arena_->at(values_[use.value]));
  for (const int block : unit.blocks) weights.push_back(arena_->at(weights_[block]));
  for (const int block : unit.gradient_blocks) gradients.push_back(reinterpret_cast<float*>(arena_->at(gradients_[block])));
  UnitCall call;
  call.values = values;
  call.weights = weights;
  call.gradients = gradients;
  call.workspace = arena_->at(workspace_);
  call.tokens = call.targets = tokens_.data();
  UnitOps& ops = *model_.ops[static_cast<std::size_t>(pass.unit)];
  pass.forward ? ops.forward(call) : ops.backward(call);
}

}  // namespace spillway
