#include "trainer/keep/checkpoint_weights.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "memory/base/error.h"
#include "offload/host_adamw.h"
#include "trainer/keep/checkpoint.h"
#include "trainer/keep/state_io.h"
#include "trainer/keep/state_sums.h"

namespace spillway {
namespace {

constexpr std::size_t kRange = 1 << 16;  // elements read at a time, so that memory stays small

// We wrote the file, so any fault in it is damage, not bad input.
SafetensorsReader opened(const std::string& path) {
  try {
    return SafetensorsReader(path);
  } catch (const InputError& error) {
    throw IoError(fmt::format("the checkpoint is damaged: {}", error.what()), "Use an older checkpoint of the run.");
  }
}

}  // namespace

CheckpointWeights::CheckpointWeights(const std::string& checkpoint, const UnitGraph& graph, DType wanted)
    : path_(checkpoint_state_file(checkpoint)), graph_(graph), reader_(opened(path_)), file_(PosixFile::open_to_read(path_)) {
  const StateSums sums = read_state_sums(path_);
  const auto has = [&](StateKind kind) {
    return std::ranges::any_of(
        graph.blocks, [&](const ParameterBlock& block) { return reader_.find(state_array_name(block, kind)) != nullptr; });
  };
  form_ = has(StateKind::low) ? StateForm::exact : has(StateKind::master) ? StateForm::fp16 : StateForm::fp32;
  takes_low_ = form_ == StateForm::exact && wanted != DType::bfloat16;
  if (form_ == StateForm::fp16 && wanted != DType::float16) kind_ = StateKind::master;
  for (const ParameterBlock& block : graph.blocks) {
    if (block.frozen) continue;
    for (const StateArray& array : state_of(block, form_)) {
      if (array.kind != kind_ && (array.kind != StateKind::low || !takes_low_)) continue;
      const ElementType type = element_type_of(array);
      const std::string name = state_array_name(block, array.kind);
      const StoredTensor* found = reader_.find(name);
      if (found != nullptr && found->type == type && found->elements == block.elements) {
        check_state_array(sums, path_, file_, *found);
        continue;
      }
      throw InputError(
          fmt::format("{}: has {} for {}, but the model wants {} elements of {}", path_,
                      found == nullptr ? "nothing" : fmt::format("{} elements of {}", found->elements, name_of(found->type)),
                      name, block.elements, name_of(type)),
          "The model's config.json must be the one that the run was trained with.");
    }
  }
}

const StoredTensor& CheckpointWeights::tensor(int block, StateKind kind) const {
  return *reader_.find(state_array_name(graph_.blocks[block], kind));
}

void CheckpointWeights::refuse_what_is_not_finite(int block, std::int64_t begin, std::span<const float> values) const {
  // Tests exponents, and tests all of them: a loop that stops early is not vectorized.
  constexpr std::uint32_t kExponent = 0x7f800000u;
  std::uint32_t found = 0;
  for (const float value : values) found |= (std::bit_cast<std::uint32_t>(value) & kExponent) == kExponent ? 1u : 0u;
  if (found == 0) return;
  const auto bad = std::ranges::find_if(values, [](float value) { return !std::isfinite(value); });
  throw IoError(fmt::format("{}: element {} of {} is {}: the checkpoint is damaged", path_, begin + (bad - values.begin()),
                            graph_.blocks[block].name, *bad),
                "Use an older checkpoint of the run.");
}

void CheckpointWeights::read(int block, std::int64_t begin, std::span<float> out) const {
  const StoredTensor& weight = tensor(block, kind_);
  if (weight.type == ElementType::f32) {
    file_.read(weight.offset + 4 * begin, std::as_writable_bytes(out));
    return refuse_what_is_not_finite(block, begin, out);
  }
  if (form_ == StateForm::fp16) {
    std::vector<Float16> halves(std::min<std::size_t>(kRange, out.size()));
    for (std::size_t at = 0; at < out.size(); at += halves.size()) {
      const auto part = std::span(halves).first(std::min(halves.size(), out.size() - at));
      file_.read(weight.offset + 2 * (begin + static_cast<std::int64_t>(at)), std::as_writable_bytes(part));
      std::ranges::transform(part, out.begin() + static_cast<std::ptrdiff_t>(at), &Float16::to_float);
    }
    return refuse_what_is_not_finite(block, begin, out);
  }
  std::vector<BFloat16> highs(std::min<std::size_t>(kRange, out.size()));
  std::vector<std::int16_t> lows(highs.size(), 0);
  for (std::size_t at = 0; at < out.size(); at += highs.size()) {
    const std::size_t count = std::min(highs.size(), out.size() - at);
    const Bytes offset = 2 * (begin + static_cast<std::int64_t>(at));
    file_.read(weight.offset + offset, std::as_writable_bytes(std::span(highs).first(count)));
    if (takes_low_)
      file_.read(tensor(block, StateKind::low).offset + offset, std::as_writable_bytes(std::span(lows).first(count)));
    for (std::size_t i = 0; i < count; ++i) out[at + i] = join_master(highs[i], lows[i]);
  }
  refuse_what_is_not_finite(block, begin, out);
}

}  // namespace spillway
