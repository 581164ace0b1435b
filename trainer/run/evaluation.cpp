#include "trainer/run/evaluation.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

#include "files/json_text.h"
#include "memory/base/error.h"
#include "trainer/host/host.h"
#include "trainer/host/interrupt.h"
#include "trainer/keep/run_files.h"
#include "trainer/options/resolve_options.h"
#include "trainer/options/validate_options.h"
#include "trainer/plan/budgets.h"
#include "trainer/plan/evaluation_plan.h"
#include "trainer/plan/prepared_model.h"
#include "trainer/run/forward_run.h"
#include "trainer/run/missing_weights.h"
#include "trainer/words/quantity.h"

namespace spillway {
namespace {

DataRequest data_of(const ResolvedOptions& resolved, const PreparedModel& model) {
  const auto typed = [&](const char* flag) {
    return resolved.sources.contains(flag) && resolved.sources.at(flag) == OptionSource::flag;
  };
  RunOptions options = resolved.options;
  // Rows that a run holds back are of its own data.
  if (typed("data") && !typed("eval-split")) options.data.eval_split.reset();
  const bool splits = options.data.eval_data.empty() && options.data.eval_split;
  const bool training = !splits && (options.data.eval_data.empty() || (typed("data") && !typed("eval-data")));
  if (training) options.data.eval_data = options.data.data;
  if (options.data.eval_data.empty() && !(splits && !options.data.data.empty())) require_data({});
  DataRequest request = evaluation_data(options, model.seq_length(), model.model().config.vocab);
  if (training) request.flag = "--data";
  request.micro_batches = 1;
  return request;
}

}  // namespace

LossSum loss_over(Executor& executor, BatchSampler& data, const EvaluationRound& round, const std::function<void()>& keep_going) {
  LossSum loss;
  const std::int64_t sequences = data.sequences();
  for (std::int64_t batch = 0; batch * round.micro_batch_size < sequences; batch += round.ranks) {
    if (keep_going) keep_going();
    loss.sum += executor.evaluate([&](int rank, const MicroBatchRows& of) {
      const std::int64_t first = (batch + rank) * round.micro_batch_size,
                         rows = std::clamp<std::int64_t>(sequences - first, 0, round.micro_batch_size);
      data.fill(batch + rank, 0, of.tokens, of.targets, of.documents);
      // The data starts over at its end: sequences that come a second time are left out.
      const auto kept = of.targets.size() / static_cast<std::size_t>(round.micro_batch_size) * static_cast<std::size_t>(rows);
      std::ranges::fill(of.targets.subspan(kept), kNoLoss);
      loss.tokens += std::ssize(of.targets) - std::ranges::count(of.targets, kNoLoss);
    });
  }
  if (loss.tokens == 0) throw InputError("the data to evaluate on has no position with a loss");
  return loss;
}

EvaluationResult evaluate(const ResolvedOptions& resolved, std::optional<std::int64_t> step) {
  const RunOptions& options = resolved.options;
  require_model(options);
  refuse_catalogue_name(options);
  const InterruptHandler interrupt;
  require_threads(threads_of_run(options));
  const PreparedModel model(options);
  refuse_other_model(options, model.model().config);
  const UnitGraph& graph = model.in_small_units().graph;
  const DataRequest request = data_of(resolved, model);
  BatchSampler data(request);

  const NamedWeights weights = open_weights(options, model.model(), graph, step);
  EvaluationResult result;
  result.model = weights.name;
  const Plan plan = evaluation_plan(graph, options.precision.dtype, budgets_of_run(options, {}, Where::here),
                                    {"evaluation", "shorter sequences or a smaller --micro-batch-size"});
  ForwardRun run(options,
                 {.plan = &plan,
                  .model = &model.in_small_units(),
                  .evaluation = &model.in_small_units(),
                  .rank = {&model.device(), &model.pool(), nullptr}},
                 weights);

  const auto begin = std::chrono::steady_clock::now();
  result.loss = loss_over(run.executor(), data, {.micro_batch_size = options.batch.micro_batch_size}, [&] {
    if (interrupt.requested()) throw Error(kExitInterrupted, "interrupted: the data was not evaluated to its end", "");
  });
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (!std::isfinite(result.loss.mean()))
    throw NotFiniteError(
        fmt::format("the loss is {}: the weights of {} overflow on this data", result.loss.mean(), result.model));
  result.perplexity = std::exp(result.loss.mean());
  result.sequences = data.sequences();
  result.paths = request.paths;
  result.data = data.summary();
  return result;
}

std::string evaluation_text(const EvaluationResult& result) {
  return fmt::format("{}\n{}\nloss {:.6f}  perplexity {:.4f}  ({} in {}, {:.0f} tokens/s)\n", result.model, result.data,
                     result.loss.mean(), result.perplexity, counted(result.loss.tokens, "token"),
                     counted(result.sequences, "sequence"), static_cast<double>(result.loss.tokens) / result.seconds);
}

std::string evaluation_json(const EvaluationResult& result) {
  const nlohmann::ordered_json json = {{"model", result.model},           {"data", result.paths},
                                       {"summary", result.data},          {"loss", result.loss.mean()},
                                       {"perplexity", result.perplexity}, {"tokens", result.loss.tokens},
                                       {"sequences", result.sequences},   {"seconds", result.seconds}};
  return json_text(json);
}

}  // namespace spillway
