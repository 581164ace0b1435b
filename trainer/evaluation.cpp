#include "trainer/evaluation.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

#include "memory/arena.h"
#include "memory/error.h"
#include "models/weights_io.h"
#include "nvme/store.h"
#include "offload/host_adamw.h"
#include "trainer/checkpoint.h"
#include "trainer/checkpoint_weights.h"
#include "trainer/evaluation_plan.h"
#include "trainer/interrupt.h"
#include "trainer/prepared_run.h"

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

std::unique_ptr<Store> store_of(const RunOptions& options, const Plan& plan) {
  const Bytes bytes = plan.peak[static_cast<int>(Tier::nvme)];
  if (bytes == 0) return nullptr;
  StoreOptions store;
  for (const NvmeDirectory& directory : options.memory.nvme) store.directories.push_back({directory.path, directory.size.value_or(0)});
  store.bytes = bytes;
  return std::make_unique<Store>(std::move(store));
}

BlockSource source_of(const PreparedModel& model, const RunOptions& options, const std::optional<CheckpointWeights>& checkpoint, const std::optional<SafetensorsReader>& reader) {
  const UnitGraph& graph = model.tiled().graph;
  if (checkpoint) return [&](int block, std::int64_t begin, std::span<float> out) { checkpoint->read_master(block, begin, out); };
  if (reader) return [&](int block, std::int64_t begin, std::span<float> out) { read_block_range(*reader, graph.blocks[block], begin, out); };
  return [&](int block, std::int64_t begin, std::span<float> out) { initial_block_range(model.model().config, graph.blocks[block], options.model.seed, begin, out); };
}

DataRequest data_of(const ResolvedOptions& resolved, const PreparedModel& model) {
  const auto typed = [&](const char* flag) { return resolved.sources.contains(flag) && resolved.sources.at(flag) == OptionSource::flag; };
  RunOptions options = resolved.options;
  const bool training = options.data.eval_data.empty() || (typed("data") && !typed("eval-data"));
  if (training) options.data.eval_data = options.data.data;
  if (options.data.eval_data.empty()) throw InputError("--data: not given", "allowed: .txt, .jsonl and .bin files, or directories of them");
  DataRequest request = evaluation_data(options, model.seq_length(), model.model().config.vocab);
  if (training) request.flag = "--data";
  request.micro_batches = 1;
  return request;
}

}  // namespace

LossSum loss_over(Executor& executor, BatchSampler& data, std::int64_t micro_batch_size, const std::function<void()>& keep_going) {
  LossSum loss;
  const std::int64_t sequences = data.sequences();
  for (std::int64_t first = 0, batch = 0; first < sequences; first += micro_batch_size, ++batch) {
    if (keep_going) keep_going();
    const std::int64_t rows = std::min(micro_batch_size, sequences - first);
    loss.sum += executor.evaluate([&](int, std::span<std::int32_t> tokens, std::span<std::int32_t> targets) {
      data.fill(batch, 0, tokens, targets);
      // The data starts over at its end: what comes twice is left out.
      const auto kept = targets.size() / static_cast<std::size_t>(micro_batch_size) * static_cast<std::size_t>(rows);
      std::ranges::fill(targets.subspan(kept), kNoLoss);
      loss.tokens += static_cast<std::int64_t>(targets.size()) - std::ranges::count(targets, kNoLoss);
    });
  }
  if (loss.tokens == 0) throw InputError("the data to evaluate on has no position with a loss");
  return loss;
}

EvaluationResult evaluate(const ResolvedOptions& resolved, std::optional<std::int64_t> step) {
  const RunOptions& options = resolved.options;
  require_model(options);
  if (step && options.checkpoint.load.empty()) throw InputError("--step: found without --load, allowed: together with --load DIR");
  const PreparedModel model(options);
  const UnitGraph& graph = model.tiled().graph;
  BatchSampler data(data_of(resolved, model));

  EvaluationResult result;
  std::optional<CheckpointWeights> checkpoint;
  std::optional<SafetensorsReader> reader;
  result.model = options.model.model;
  if (const std::string& run = options.checkpoint.load; !run.empty()) {
    const LoadedCheckpoint found = step ? checkpoint_of_step(run, *step) : newest_checkpoint(run);
    checkpoint.emplace(found.path, graph);
    result.model = fmt::format("{}, step {}", run, found.step);
  } else if (!model.model().directory.empty()) {
    reader.emplace(model.model().directory);
    check_weights(*reader, model.model().config, graph);
  } else {
    result.model += ", weights drawn from --seed";
  }

  const StateForm form = options.precision.dtype == DType::float32 ? StateForm::fp32 : StateForm::exact;
  const Plan plan = evaluation_plan(graph, form, budgets_for(options));
  const std::unique_ptr<Store> store = store_of(options, plan);
  Executor executor({.plan = &plan, .model = &model.tiled(), .evaluation = &model.tiled(), .pool = &model.pool(), .store = store.get(), .seed = options.model.seed});
  fill_weights(executor, graph, form, source_of(model, options, checkpoint, reader));

  const InterruptHandler interrupt;
  const auto begin = std::chrono::steady_clock::now();
  result.loss = loss_over(executor, data, options.batch.micro_batch_size, [&] {
    if (interrupt.requested()) throw Error(kExitInterrupted, "interrupted: the data was not evaluated to its end", "");
  });
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (!std::isfinite(result.loss.mean())) throw InputError(fmt::format("the loss is {}: the weights of {} overflow on this data", result.loss.mean(), result.model));
  result.perplexity = std::exp(result.loss.mean());
  result.sequences = data.sequences();
  return result;
}

std::string evaluation_text(const EvaluationResult& result) {
  return fmt::format("{}\nloss {:.6f}  perplexity {:.4f}  ({} tokens in {} sequences, {:.0f} tokens/s)\n", result.model, result.loss.mean(), result.perplexity, result.loss.tokens,
                     result.sequences, static_cast<double>(result.loss.tokens) / result.seconds);
}

std::string evaluation_json(const EvaluationResult& result) {
  const nlohmann::ordered_json json = {{"model", result.model}, {"loss", result.loss.mean()}, {"perplexity", result.perplexity}, {"tokens", result.loss.tokens},
                                       {"sequences", result.sequences}, {"seconds", result.seconds}};
  return json.dump(1) + "\n";
}

}  // namespace spillway
