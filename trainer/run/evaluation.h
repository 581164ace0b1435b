// The mean loss of a model on data: what `spillway eval` prints and what train logs as eval_loss.
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

// All sequences of the data once, in micro-batches of B = micro_batch_size; where the last is not full, its rest counts nothing.
// `keep_going` is asked before each micro-batch and may throw. InputError where no position has a loss.
LossSum loss_over(Executor& executor, BatchSampler& data, std::int64_t micro_batch_size,
                  const std::function<void()>& keep_going = {});

struct EvaluationResult {
  LossSum loss;
  double perplexity = 0;  // exp of the mean
  std::int64_t sequences = 0;
  double seconds = 0;              // of the forwards
  std::string model;               // what was evaluated: "/models/x", or "runs/first, step 100"
  std::vector<std::string> paths;  // of the data, as they were given
  std::string data;                // a line: files, sequences, lines that were left out
};

// Of --model, or of the checkpoint of --load (the newest, or that of `step`), on --eval-data or --data: the one that was typed,
// the former where both or neither were. InputError, BudgetError, IoError.
EvaluationResult evaluate(const ResolvedOptions& resolved, std::optional<std::int64_t> step);

// A line for people, and JSON.
std::string evaluation_text(const EvaluationResult& result);
std::string evaluation_json(const EvaluationResult& result);

}  // namespace spillway
