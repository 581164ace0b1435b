// The mean loss of a model on data: `spillway eval` prints it and train logs it as eval_loss.
// Not here: the forward (offload/executor.h), the plan for it (trainer/plan/evaluation_plan.h).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "offload/executor.h"
#include "trainer/data/data.h"
#include "trainer/options/options.h"
#include "trainer/options/resolve_options.h"

namespace spillway {

struct LossSum {
  double sum = 0;
  std::int64_t tokens = 0;  // positions with loss
  double mean() const { return sum / static_cast<double>(tokens); }
};

struct EvaluationRound {
  std::int64_t micro_batch_size = 1;  // B
  std::int64_t ranks = 1;             // those of the executor, each of which takes a micro-batch at a time
};

// Reads all sequences of the data once, a micro-batch of B for each rank at a time; what is left of the last micro-batches does
// not count. Calls `keep_going` before each round; it may throw. Throws InputError if no position has a loss.
LossSum loss_over(Executor& executor, BatchSampler& data, const EvaluationRound& round,
                  const std::function<void()>& keep_going = {});

struct EvaluationResult {
  LossSum loss;
  double perplexity = 0;  // exp of the mean
  std::int64_t sequences = 0;
  double seconds = 0;              // duration of the forwards
  std::string model;               // the evaluated model: "/models/x", or "runs/first, step 100"
  std::vector<std::string> paths;  // paths of the data, as given
  std::string data;                // one line: files, sequences, lines that were left out
};

// Evaluates --model, or a checkpoint of --load (of `step`, or the newest), on --eval-data or --data: the one that was typed;
// --eval-data if both or neither were. Where a run holds back rows by --eval-split and has no --eval-data: on these. Throws
// InputError, BudgetError or IoError.
EvaluationResult evaluate(const ResolvedOptions& resolved, std::optional<std::int64_t> step);

// One line for people, and JSON.
std::string evaluation_text(const EvaluationResult& result);
std::string evaluation_json(const EvaluationResult& result);

}  // namespace spillway
