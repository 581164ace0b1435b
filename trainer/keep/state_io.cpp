#include "trainer/keep/state_io.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "files/posix_file.h"
#include "files/safetensors.h"
#include "memory/base/error.h"
#include "memory/base/parallel.h"
#include "memory/runtime/arena.h"
#include "offload/host_adamw.h"
#include "trainer/host/host.h"
#include "trainer/host/interrupt.h"
#include "trainer/keep/state_conversion.h"
#include "trainer/keep/state_sums.h"

namespace spillway {
namespace {

constexpr std::int64_t kChunk = 1 << 20;  // elements
constexpr std::string_view kNotLoaded = "the state was not brought to its place; nothing was changed";
static_assert(kChunk % kBlockElements == 0);

// Visits every array of every trained block in chunks of at most kChunk elements.
void for_each_chunk(
    const Plan& plan, const UnitGraph& graph,
    const std::function<void(int block, const StateArray& array, std::int64_t begin, std::int64_t elements)>& visit) {
  for (int block = 0; block < static_cast<int>(graph.blocks.size()); ++block) {
    const std::int64_t elements = graph.blocks[block].frozen ? 0 : graph.blocks[block].elements;
    for (const StateArray& array : state_of(graph.blocks[block], plan.choices.form)) {
      for (std::int64_t begin = 0; begin < elements; begin += kChunk)
        visit(block, array, begin, std::min(kChunk, elements - begin));
    }
  }
}

std::span<std::byte> bytes_of(const Arena& arena, Bytes begin, Bytes bytes) {
  return {arena.data() + begin, static_cast<std::size_t>(bytes)};
}

}  // namespace

ElementType element_type_of(const StateArray& array) {
  return array.kind == StateKind::low ? ElementType::u16 : element_type_of(array.type);
}

namespace {

BlockSource drawn_weights(const ModelConfig& config, const UnitGraph& graph, std::uint64_t seed) {
  // An element depends only on its place, so all threads draw, each a part.
  const auto pool = std::make_shared<const ThreadPool>(usable_threads());
  return [&config, &graph, seed, pool](int block, std::int64_t begin, std::span<float> out) {
    constexpr std::int64_t each = 16 << 10;
    const auto elements = static_cast<std::int64_t>(out.size());
    pool->parallel_for((elements + each - 1) / each, [&](std::int64_t part, int) {
      const std::int64_t first = part * each, count = std::min(each, elements - first);
      initial_block_range(config, graph.blocks[block], seed, begin + first,
                          out.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count)));
    });
  };
}

}  // namespace

BlockSource weights_of_adapter(const std::string& directory, const ModelConfig& config, const UnitGraph& graph,
                               std::uint64_t seed) {
  if (directory.empty()) return drawn_weights(config, graph, seed);
  const auto reader = std::make_shared<const SafetensorsReader>(directory + "/adapter_model.safetensors");
  check_adapter_weights(*reader, graph);
  return [reader, &graph](int block, std::int64_t begin, std::span<float> out) {
    read_block_range(*reader, graph.blocks[block], begin, out);
  };
}

BlockSource with_adapter(const UnitGraph& graph, BlockSource model, BlockSource adapter) {
  return [&graph, model = std::move(model), adapter = std::move(adapter)](int block, std::int64_t begin, std::span<float> out) {
    (graph.blocks[block].of_adapter ? adapter : model)(block, begin, out);
  };
}

BlockSource weights_of_model(const ResolvedModel& model, const UnitGraph& graph, std::uint64_t seed) {
  if (model.directory.empty()) return drawn_weights(model.config, graph, seed);
  const auto reader = std::make_shared<const SafetensorsReader>(model.directory);
  check_weights(*reader, model.config, graph);
  const bool draws_head = head_in(*reader, model.config) == HeadInFile::missing;
  return [reader, draws_head, seed, &model, &graph](int block, std::int64_t begin, std::span<float> out) {
    const ParameterBlock& wanted = graph.blocks[block];
    if (draws_head && is_of_head(wanted)) return initial_block_range(model.config, wanted, seed, begin, out);
    read_block_range(*reader, wanted, begin, out);
  };
}

std::uint64_t write_weights(Executor& executor, const UnitGraph& graph, StateForm form, WeightParts parts,
                            const BlockSource& source, BlocksToWrite blocks) {
  ContentHasher hasher;
  bool has_frozen = false;
  const Arena staging(8 * kChunk, "weights on their way in");
  auto* master = reinterpret_cast<float*>(staging.data());
  auto* high = reinterpret_cast<BFloat16*>(staging.data() + 4 * kChunk);
  auto* low = reinterpret_cast<std::int16_t*>(staging.data() + 6 * kChunk);
  auto* half = reinterpret_cast<Float16*>(staging.data() + 4 * kChunk);
  for (int block = 0; block < static_cast<int>(graph.blocks.size()); ++block) {
    const std::int64_t all = graph.blocks[block].elements;
    const bool frozen = graph.blocks[block].frozen;
    if (!frozen && blocks == BlocksToWrite::frozen) continue;
    has_frozen |= frozen;
    for (std::int64_t begin = 0; begin < all; begin += kChunk) {
      const std::int64_t elements = std::min(kChunk, all - begin);
      InterruptHandler::stop_where_requested(kNotLoaded);
      source(block, begin, {master, static_cast<std::size_t>(elements)});
      if (frozen) hasher.add(bytes_of(staging, 0, 4 * elements));
      if (form == StateForm::fp32) {
        executor.write_state(block, StateKind::weight, begin, bytes_of(staging, 0, 4 * elements));
        continue;
      }
      if (form == StateForm::fp16) {
        for (std::int64_t i = 0; i < elements; ++i) half[i] = finite_float16(master[i]);
        executor.write_state(block, StateKind::weight, begin, bytes_of(staging, 4 * kChunk, 2 * elements));
        if (parts == WeightParts::master && !frozen)
          executor.write_state(block, StateKind::master, begin, bytes_of(staging, 0, 4 * elements));
        continue;
      }
      for (std::int64_t i = 0; i < elements; ++i) high[i] = split_master(master[i]).high;
      executor.write_state(block, StateKind::weight, begin, bytes_of(staging, 4 * kChunk, 2 * elements));
      if (parts == WeightParts::forward || frozen) continue;
      for (std::int64_t i = 0; i < elements; ++i) low[i] = split_master(master[i]).low;
      executor.write_state(block, StateKind::low, begin, bytes_of(staging, 6 * kChunk, 2 * elements));
    }
  }
  return has_frozen ? hasher.take() : 0;
}

std::uint64_t hash_of_frozen(const UnitGraph& graph, const BlockSource& source) {
  const Arena staging(4 * kChunk, "weights that are hashed");
  auto* const weights = reinterpret_cast<float*>(staging.data());
  ContentHasher hasher;
  for (int block = 0; block < static_cast<int>(graph.blocks.size()); ++block) {
    for (std::int64_t begin = 0; graph.blocks[block].frozen && begin < graph.blocks[block].elements; begin += kChunk) {
      const std::int64_t elements = std::min(kChunk, graph.blocks[block].elements - begin);
      InterruptHandler::stop_where_requested("nothing was written");
      source(block, begin, {weights, static_cast<std::size_t>(elements)});
      hasher.add(bytes_of(staging, 0, 4 * elements));
    }
  }
  return hasher.take();
}

namespace {

std::vector<TensorToWrite> tensors_of(const Plan& plan, const UnitGraph& graph) {
  std::vector<TensorToWrite> tensors;
  for (const ParameterBlock& block : graph.blocks) {
    for (const StateArray& array : block.frozen ? StateList() : state_of(block, plan.choices.form))
      tensors.push_back({state_array_name(block, array.kind), element_type_of(array), {block.elements}});
  }
  return tensors;
}

}  // namespace

StateSums save_state(Executor& executor, const Plan& plan, const UnitGraph& graph, const std::string& file) {
  SummedWriter writer(file, tensors_of(plan, graph));
  const Arena staging(4 * kChunk, "state on its way out");
  for_each_chunk(plan, graph, [&](int block, const StateArray& array, std::int64_t begin, std::int64_t elements) {
    const auto data = bytes_of(staging, 0, elements * array.each());
    executor.read_state(block, array.kind, begin, data);
    writer.append(state_array_name(graph.blocks[block], array.kind), data);
  });
  return writer.finish();
}

StateSums save_held_state(const StateHold& held, const Plan& plan, const UnitGraph& graph, const std::string& file,
                          const std::function<void()>& between) {
  SummedWriter writer(file, tensors_of(plan, graph));
  for_each_chunk(plan, graph, [&](int block, const StateArray& array, std::int64_t begin, std::int64_t elements) {
    const auto first = static_cast<std::size_t>(begin * array.each()), bytes = static_cast<std::size_t>(elements * array.each());
    writer.append(state_array_name(graph.blocks[block], array.kind), held.on_device(block, array.kind).subspan(first, bytes));
    between();
  });
  return writer.finish();
}

namespace {

const ParameterBlock& first_trained(const UnitGraph& graph) {
  return *std::ranges::find(graph.blocks, false, &ParameterBlock::frozen);
}

// A checkpoint's arrays, in the form that they have in the file.
class StoredState {
 public:
  StoredState(const std::string& file, const UnitGraph& graph, StateForm wanted)
      : path_(file),
        graph_(graph),
        reader_(file),
        file_(PosixFile::open_to_read(file)),
        sums_(read_state_sums(file)),
        form_(wanted) {
    const auto has = [&](StateKind kind, ElementType type) {
      const StoredTensor* tensor = reader_.find(state_array_name(first_trained(graph_), kind));
      return tensor != nullptr && tensor->type == type;
    };
    // A file of neither form is later refused for not having the wanted form.
    if (has(StateKind::weight, ElementType::f32)) {
      form_ = StateForm::fp32;
    } else if (has(StateKind::master, ElementType::f32)) {
      form_ = StateForm::fp16;
    } else if (has(StateKind::low, ElementType::u16)) {
      form_ = has(StateKind::m, ElementType::bf16) ? StateForm::compact : StateForm::exact;
    }
  }

  StateForm form() const noexcept { return form_; }

  // Reads pieces of an array, from its first element on; the last piece completes its check.
  void read(int block, const StateArray& array, std::int64_t begin, std::span<std::byte> data) {
    const std::string name = state_array_name(graph_.blocks[block], array.kind);
    const StoredTensor* tensor = reader_.find(name);
    const ElementType wanted = element_type_of(array);
    if (tensor == nullptr || tensor->type != wanted || tensor->elements != graph_.blocks[block].elements) {
      throw InputError(
          fmt::format("{}: the checkpoint has {} for {}, but this model's state wants {} elements of {}", path_,
                      tensor == nullptr ? "nothing" : fmt::format("{} elements of {}", tensor->elements, name_of(tensor->type)),
                      name, graph_.blocks[block].elements, name_of(wanted)),
          "Load it with the model that it was saved with.");
    }
    const Bytes at = begin * array.each();
    file_.read(tensor->offset + at, data);
    ContentHasher& hasher = hashers_[static_cast<std::size_t>(array.kind)];
    hasher.add(data);
    if (at + std::ssize(data) == tensor->bytes) check_state_sum(sums_, path_, name, hasher.take());
  }

 private:
  const std::string path_;
  const UnitGraph& graph_;
  const SafetensorsReader reader_;
  const PosixFile file_;
  const StateSums sums_;
  std::array<ContentHasher, kStateKinds> hashers_;  // of arrays that are partly read
  StateForm form_;
};

void load_converted(StoredState& stored, Executor& executor, const Plan& plan, const UnitGraph& graph) {
  constexpr Bytes place = 4 * kChunk;
  const Arena staging(2 * kStateKinds * place, "state on its way into another form");
  std::array<const std::byte*, kStateKinds> in{};
  std::array<std::byte*, kStateKinds> out{};
  for (int kind = 0; kind < kStateKinds; ++kind) {
    in[static_cast<std::size_t>(kind)] = staging.data() + kind * place;
    out[static_cast<std::size_t>(kind)] = staging.data() + (kStateKinds + kind) * place;
  }
  for (int block = 0; block < static_cast<int>(graph.blocks.size()); ++block) {
    for (std::int64_t begin = 0; !graph.blocks[block].frozen && begin < graph.blocks[block].elements; begin += kChunk) {
      const std::int64_t elements = std::min(kChunk, graph.blocks[block].elements - begin);
      InterruptHandler::stop_where_requested(kNotLoaded);
      for (const StateArray& array : state_of(graph.blocks[block], stored.form()))
        stored.read(block, array, begin, bytes_of(staging, static_cast<int>(array.kind) * place, elements * array.each()));
      convert_state(stored.form(), in, plan.choices.form, out, elements);
      for (const StateArray& array : state_of(graph.blocks[block], plan.choices.form)) {
        const Bytes at = (kStateKinds + static_cast<int>(array.kind)) * place;
        executor.write_state(block, array.kind, begin, bytes_of(staging, at, elements * array.each()));
      }
    }
  }
}

}  // namespace

void load_state(Executor& executor, const Plan& plan, const UnitGraph& graph, const std::string& file) {
  StoredState stored(file, graph, plan.choices.form);
  if (stored.form() != plan.choices.form) return load_converted(stored, executor, plan, graph);
  const Arena staging(4 * kChunk, "state on its way in");
  for_each_chunk(plan, graph, [&](int block, const StateArray& array, std::int64_t begin, std::int64_t elements) {
    const auto data = bytes_of(staging, 0, elements * array.each());
    InterruptHandler::stop_where_requested(kNotLoaded);
    stored.read(block, array, begin, data);
    executor.write_state(block, array.kind, begin, data);
  });
}

StateForm form_of_stored(const std::string& file, const UnitGraph& graph) {
  return StoredState(file, graph, StateForm::fp32).form();
}

bool weights_are_finite(Executor& executor, const Plan& plan, const UnitGraph& graph) {
  const Arena staging(4 * kChunk, "weights that are looked at");
  bool finite = true;
  for_each_chunk(plan, graph, [&](int block, const StateArray& array, std::int64_t begin, std::int64_t elements) {
    const bool is_weight = array.kind == StateKind::weight || array.kind == StateKind::master;
    if (!is_weight || !finite) return;
    const bool single = array.type == DType::float32;
    const std::uint16_t exponent = array.type == DType::float16 ? 0x7c00 : 0x7f80;
    executor.read_state(block, array.kind, begin, bytes_of(staging, 0, elements * array.each()));
    for (std::int64_t i = 0; i < elements; ++i) {
      // A number that is not finite has an exponent of all ones, in the upper half of an fp32 as in a bf16.
      const auto* halves = reinterpret_cast<const std::uint16_t*>(staging.data());
      const std::uint16_t upper = halves[single ? 2 * i + 1 : i];
      finite &= (upper & exponent) != exponent;
    }
  });
  return finite;
}

}  // namespace spillway
