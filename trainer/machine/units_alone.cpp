#include "trainer/machine/units_alone.h"

#include <hwy/cache_control.h>

#include <algorithm>
#include <utility>

#include "models/build.h"
#include "models/catalogue/catalogue.h"
#include "models/cpu/cpu_scratch.h"

namespace spillway {

void fill_with_numbers(std::byte* data, Bytes bytes, DType dtype) {
  const std::int64_t elements = bytes / size_of(dtype);
  for (std::int64_t i = 0; i < elements; ++i) {
    const float value = 0.01f * static_cast<float>((i * 37) % 101 - 50);
    if (dtype == DType::float32) {
      reinterpret_cast<float*>(data)[i] = value;
    } else {
      reinterpret_cast<BFloat16*>(data)[i] = BFloat16::from_float(value);
    }
  }
}

void leave_caches(const std::byte* data, Bytes bytes) {
  constexpr Bytes line = 64;
  for (Bytes at = 0; at < bytes; at += line) hwy::FlushCacheline(data + at);
}

namespace {

ModelConfig with_one_layer(ModelConfig config) {
  config.layers = 1;
  config.windows.resize(1);
  return config;
}

}  // namespace

UnitsAlone::UnitsAlone(const ThreadPool& pool, std::string_view model, const Shape& shape, Units units)
    : model_(build_model(with_one_layer(catalogue_config(model)),
                         {.dtype = shape.dtype,
                          .micro_batch = shape.micro_batch,
                          .sequence = shape.sequence,
                          .head = shape.head,
                          .scratch = cpu_scratch_bound(traits_of_this_cpu(pool.threads()))})),
      backend_(pool),
      values_(graph().values.size(), -1),
      weights_(graph().blocks.size(), -1),
      gradients_(graph().blocks.size(), -1) {
  constexpr std::int64_t words = 997;  // every vocabulary has so many
  for (std::int64_t row = 0; row < graph().rows; ++row) tokens_.push_back(static_cast<std::int32_t>(row * 7919 % words));
  for (int u = 0; u < static_cast<int>(graph().units.size()); ++u) {
    if (units == Units::all || graph().units[u].name.starts_with("layer")) passes_.push_back({u, true});
  }
  for (std::size_t i = passes_.size(); i-- > 0;) passes_.push_back({passes_[i].unit, false});
  std::erase_if(passes_, [&](const Pass& pass) { return pass.forward && unit_of(pass).role != ForwardRole::computes; });

  Bytes end = 0, scratch = 0;
  const auto place = [&](Bytes& at, Bytes bytes) {
    if (at < 0) at = std::exchange(end, end + round_up(bytes, kExtentAlignment));
  };
  for (const Pass& pass : passes_) {
    const Unit& unit = unit_of(pass);
    for (const ValueUse& use : pass.forward ? unit.forward : unit.backward)
      place(values_[use.value], graph().values[use.value].bytes);
    for (const int block : unit.blocks) place(weights_[block], graph().blocks[block].elements * size_of(shape.dtype));
    for (const int block : unit.gradient_blocks) place(gradients_[block], graph().blocks[block].elements * 4);
    scratch = std::max({scratch, unit.forward_workspace, unit.backward_workspace});
  }
  place(constants_, graph().constant_bytes);
  workspace_ = end;
  arena_.emplace(end + scratch, "units alone");
  arena_->prefault(pool);
  backend_.prepare(model_);
  const Constants& constants = model_.constants;
  if (constants.bytes > 0) constants.fill({arena_->at(constants_), static_cast<std::size_t>(constants.bytes)});
  for (std::size_t b = 0; b < weights_.size(); ++b) {
    if (weights_[b] >= 0)
      fill_with_numbers(arena_->at(weights_[b]), graph().blocks[b].elements * size_of(shape.dtype), shape.dtype);
  }
  for (std::size_t v = 0; v < values_.size(); ++v) {
    if (values_[v] >= 0) fill_with_numbers(arena_->at(values_[v]), graph().values[v].bytes, shape.dtype);
  }
}

void UnitsAlone::run_all() {
  for (const Pass& pass : passes_) run(pass);
}

Work UnitsAlone::work_of_all() const {
  Work work;
  for (const Pass& pass : passes_) work += work_of(pass);
  return work;
}

void UnitsAlone::leave_caches(const Pass& pass) const {
  const Unit& unit = unit_of(pass);
  for (const int block : unit.blocks)
    spillway::leave_caches(arena_->at(weights_[block]), graph().blocks[block].elements * size_of(graph().dtype));
  if (pass.forward) return;
  for (const int block : unit.gradient_blocks)
    spillway::leave_caches(arena_->at(gradients_[block]), graph().blocks[block].elements * static_cast<Bytes>(sizeof(float)));
}

void UnitsAlone::run(const Pass& pass) {
  const Unit& unit = unit_of(pass);
  std::vector<std::byte*> values;
  std::vector<const std::byte*> weights;
  std::vector<float*> gradients;
  for (const ValueUse& use : pass.forward ? unit.forward : unit.backward) values.push_back(arena_->at(values_[use.value]));
  for (const int block : unit.blocks) weights.push_back(arena_->at(weights_[block]));
  for (const int block : unit.gradient_blocks) gradients.push_back(reinterpret_cast<float*>(arena_->at(gradients_[block])));
  MicroBatchWords of_batch{.loss_scale = 1.0f / static_cast<float>(graph().rows)};
  const UnitCode& code = *model_.code[static_cast<std::size_t>(pass.unit)];
  backend_.run(code[pass.forward ? spillway::Pass::forward : spillway::Pass::backward], {.values = values,
                                                                    .weights = weights,
                                                                    .gradients = gradients,
                                                                    .workspace = arena_->at(workspace_),
                                                                    .constants = arena_->at(constants_),
                                                                    .tokens = tokens_.data(),
                                                                    .targets = tokens_.data(),
                                                                    .words = &of_batch});
}

}  // namespace spillway
