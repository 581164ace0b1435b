#include "trainer/machine/units_alone.h"

#include <hwy/cache_control.h>

#include <algorithm>
#include <span>
#include <utility>

#include "memory/base/bfloat16.h"
#include "memory/plan/control_words.h"
#include "memory/runtime/arena.h"
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

CompiledModel built(std::string_view model, const UnitsAlone::Shape& shape, const ScratchBound& scratch) {
  return build_model(with_one_layer(catalogue_config(model)), {.dtype = shape.dtype,
                                                               .micro_batch = shape.micro_batch,
                                                               .sequence = shape.sequence,
                                                               .head = shape.head,
                                                               .scratch = scratch});
}

UnitsAlone::Part part_of(const KernelCall& call) {
  if (std::holds_alternative<kernels::Product>(call.kernel)) return UnitsAlone::Part::products;
  const bool attends =
      std::holds_alternative<kernels::Attend>(call.kernel) || std::holds_alternative<kernels::AttendBackward>(call.kernel);
  return attends ? UnitsAlone::Part::attention : UnitsAlone::Part::others;
}

}  // namespace

UnitsAlone::UnitsAlone(const ThreadPool& pool, std::string_view model, const Shape& shape, Units units)
    : own_(make_cpu_device(pool, Chain::device_nvme)),
      device_(*own_),
      model_(built(model, shape, cpu_scratch_bound(traits_of_this_cpu(pool.threads())))) {
  place_all(units);
  fill_all(shape.dtype);
}

UnitsAlone::UnitsAlone(Device& device, const ScratchBound& scratch, std::string_view model, const Shape& shape, Units units)
    : device_(device), model_(built(model, shape, scratch)) {
  place_all(units);
  fill_all(shape.dtype);
}

void UnitsAlone::place_all(Units units) {
  for (int u = 0; u < static_cast<int>(graph().units.size()); ++u) {
    if (units == Units::all || graph().units[u].name.starts_with("layer")) passes_.push_back({u, true});
  }
  for (std::size_t i = passes_.size(); i-- > 0;) passes_.push_back({passes_[i].unit, false});
  std::erase_if(passes_, [&](const Pass& pass) { return pass.forward && unit_of(pass).role != ForwardRole::computes; });

  values_.assign(graph().values.size(), -1), weights_.assign(graph().blocks.size(), -1);
  gradients_.assign(graph().blocks.size(), -1);
  Bytes scratch = 0;
  const auto place = [&](Bytes& at, Bytes bytes) {
    if (at < 0) at = std::exchange(all_, all_ + round_up(bytes, kExtentAlignment));
  };
  for (const Pass& pass : passes_) {
    const Unit& unit = unit_of(pass);
    for (const ValueUse& use : pass.forward ? unit.forward : unit.backward)
      place(values_[use.value], graph().values[use.value].bytes);
    for (const int block : unit.blocks) place(weights_[block], graph().blocks[block].elements * size_of(graph().dtype));
    for (const int block : unit.gradient_blocks) place(gradients_[block], graph().blocks[block].elements * 4);
    scratch = std::max({scratch, unit.forward_workspace, unit.backward_workspace});
  }
  place(constants_, graph().constant_bytes);
  place(tokens_, graph().rows * Bytes{sizeof(std::int32_t)});
  place(words_, kMicroBatchWordsBytes);
  workspace_ = all_;
  all_ += scratch;

  calls_.resize(2 * graph().units.size());
  for (std::size_t unit = 0; unit < graph().units.size(); ++unit) {
    for (const bool forward : {true, false}) {
      Filtered& filtered = calls_[forward ? unit : graph().units.size() + unit];
      for (const KernelCall& call : (*model_.code[unit])[forward ? spillway::Pass::forward : spillway::Pass::backward]) {
        filtered.of[static_cast<int>(Part::all)].push_back(call);
        filtered.of[static_cast<int>(part_of(call))].push_back(call);
      }
    }
  }
}

void UnitsAlone::fill_all(DType dtype) {
  Runtime& runtime = device_.runtime();
  memory_.emplace(runtime.allocate(Tier::device, all_, "units alone"));
  base_ = runtime.device_pointer(memory_->data());
  if (runtime.host_sees_device()) prefault(ThreadPool(1), base_, all_);
  runtime.enter();
  device_.backend().prepare(model_);
  const auto put = [&](Bytes to, const auto& content) {
    const auto bytes = std::as_bytes(std::span(content));
    runtime.copy(memory_->data() + to, bytes.data(), static_cast<Bytes>(bytes.size()));
  };
  constexpr std::int64_t words = 997;  // every vocabulary has at least this many
  std::vector<std::int32_t> tokens;
  for (std::int64_t row = 0; row < graph().rows; ++row) tokens.push_back(static_cast<std::int32_t>(row * 7919 % words));
  put(tokens_, tokens);
  put(words_, std::vector<MicroBatchWords>{{.loss_scale = 1.0f / static_cast<float>(graph().rows)}});
  if (const Constants& constants = model_.constants; constants.bytes > 0) {
    std::vector<std::byte> content(static_cast<std::size_t>(constants.bytes));
    constants.fill(content);
    put(constants_, content);
  }
  for (std::size_t b = 0; b < weights_.size(); ++b) {
    if (weights_[b] >= 0) fill(weights_[b], graph().blocks[b].elements * size_of(dtype), dtype);
  }
  for (std::size_t v = 0; v < values_.size(); ++v) {
    if (values_[v] >= 0) fill(values_[v], graph().values[v].bytes, dtype);
  }
}

void UnitsAlone::fill(Bytes offset, Bytes bytes, DType dtype) const {
  std::vector<std::byte> numbers(static_cast<std::size_t>(std::min<Bytes>(bytes, kMiB)));
  fill_with_numbers(numbers.data(), static_cast<Bytes>(numbers.size()), dtype);
  for (Bytes done = 0; done < bytes; done += static_cast<Bytes>(numbers.size())) {
    const Bytes part = std::min(static_cast<Bytes>(numbers.size()), bytes - done);
    device_.runtime().copy(memory_->data() + offset + done, numbers.data(), part);
  }
}

void UnitsAlone::run_all(Part part) {
  for (const Pass& pass : passes_) run(pass, part);
}

Work UnitsAlone::work_of_all() const {
  Work work;
  for (const Pass& pass : passes_) work += work_of(pass);
  return work;
}

void UnitsAlone::leave_caches(const Pass& pass) const {
  const Unit& unit = unit_of(pass);
  for (const int block : unit.blocks)
    spillway::leave_caches(at(weights_[block]), graph().blocks[block].elements * size_of(graph().dtype));
  if (pass.forward) return;
  for (const int block : unit.gradient_blocks)
    spillway::leave_caches(at(gradients_[block]), graph().blocks[block].elements * static_cast<Bytes>(sizeof(float)));
}

void UnitsAlone::run(const Pass& pass, Part part) {
  const Unit& unit = unit_of(pass);
  std::vector<std::byte*> values;
  std::vector<const std::byte*> weights;
  std::vector<float*> gradients;
  for (const ValueUse& use : pass.forward ? unit.forward : unit.backward) values.push_back(at(values_[use.value]));
  for (const int block : unit.blocks) weights.push_back(at(weights_[block]));
  for (const int block : unit.gradient_blocks) gradients.push_back(reinterpret_cast<float*>(at(gradients_[block])));
  const std::size_t index = static_cast<std::size_t>(pass.unit) + (pass.forward ? 0 : graph().units.size());
  const auto* const tokens = reinterpret_cast<const std::int32_t*>(at(tokens_));
  device_.backend().run(calls_[index].of[static_cast<int>(part)], {.values = values,
                                                                   .weights = weights,
                                                                   .gradients = gradients,
                                                                   .workspace = at(workspace_),
                                                                   .constants = constants_ < 0 ? nullptr : at(constants_),
                                                                   .tokens = tokens,
                                                                   .targets = tokens,
                                                                   .words = reinterpret_cast<MicroBatchWords*>(at(words_))});
}

}  // namespace spillway
