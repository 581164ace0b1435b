#include "trainer/run/forward_run.h"

#include <fmt/format.h>

#include <algorithm>

#include "memory/arena.h"
#include "memory/error.h"
#include "offload/host_adamw.h"
#include "trainer/keep/checkpoint.h"
#include "trainer/keep/checkpoint_weights.h"

namespace spillway {
namespace {

constexpr std::int64_t kChunk = 1 << 20;  // elements of weights on their way in
static_assert(kChunk % kBlockElements == 0);

void fill_weights(Executor& executor, const UnitGraph& graph, StateForm form, const BlockSource& source) {
  const Arena staging(6 * kChunk, "weights on their way in");
  auto* master = reinterpret_cast<float*>(staging.data());
  auto* high = reinterpret_cast<BFloat16*>(staging.at(4 * kChunk));
  for (int block = 0; block < static_cast<int>(graph.blocks.size()); ++block) {
    const std::int64_t all = graph.blocks[block].elements;
    for (std::int64_t begin = 0; begin < all; begin += kChunk) {
      const auto elements = static_cast<std::size_t>(std::min(kChunk, all - begin));
      source(block, begin, {master, elements});
      if (form == StateForm::fp32) {
        executor.write_state(block, StateKind::weight, begin, std::as_bytes(std::span(master, elements)));
      } else {
        for (std::size_t i = 0; i < elements; ++i) high[i] = split_master(master[i]).high;
        executor.write_state(block, StateKind::weight, begin, std::as_bytes(std::span(high, elements)));
      }
    }
  }
}

std::unique_ptr<Store> open_store(const RunOptions& options, const Plan& plan) {
  const Bytes bytes = plan.peak[static_cast<int>(Tier::nvme)];
  if (bytes == 0) return nullptr;
  StoreOptions store;
  for (const NvmeDirectory& directory : options.memory.nvme)
    store.directories.push_back({directory.path, directory.size.value_or(0)});
  store.bytes = bytes;
  return std::make_unique<Store>(std::move(store));
}

}  // namespace

NamedWeights open_weights(const RunOptions& options, const ResolvedModel& model, const UnitGraph& graph,
                          std::optional<std::int64_t> step) {
  const std::string& run = options.checkpoint.load;
  if (step && run.empty()) throw InputError("--step: found without --load, allowed: together with --load DIR");
  if (!run.empty()) {
    const LoadedCheckpoint found = step ? checkpoint_of_step(run, *step) : newest_checkpoint(run);
    const auto checkpoint = std::make_shared<const CheckpointWeights>(found.path, graph);
    return {fmt::format("{}, step {}", run, found.step),
            [checkpoint](int block, std::int64_t begin, std::span<float> out) { checkpoint->read_master(block, begin, out); }};
  }
  if (!model.directory.empty()) {
    const auto reader = std::make_shared<const SafetensorsReader>(model.directory);
    check_weights(*reader, model.config, graph);
    return {options.model.model, [reader, &graph](int block, std::int64_t begin, std::span<float> out) {
              read_block_range(*reader, graph.blocks[block], begin, out);
            }};
  }
  return {options.model.model + ", weights drawn from --seed",
          [&model, &graph, seed = options.model.seed](int block, std::int64_t begin, std::span<float> out) {
            initial_block_range(model.config, graph.blocks[block], seed, begin, out);
          }};
}

ForwardRun::ForwardRun(const RunOptions& options, ExecutorOptions programs, const BlockSource& weights)
    : store_(open_store(options, *programs.plan)), backend_(*programs.pool) {
  programs.store = store_.get();
  programs.backend = &backend_;
  programs.seed = options.model.seed;
  executor_ = std::make_unique<Executor>(programs);
  fill_weights(*executor_, programs.model->graph, programs.plan->choices.form, weights);
}

}  // namespace spillway
