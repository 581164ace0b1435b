// The evaluations of a training run: when they are due, what they find, and whether the run stops early.
// Not here: the loss (evaluation.h), what the run directory keeps (trainer/keep/evaluations.h), checkpoints (run_checkpoints.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "offload/executor.h"
#include "trainer/data/data.h"
#include "trainer/keep/evaluations.h"
#include "trainer/options/options.h"

namespace spillway {

class RunEvaluations {
 public:
  // `options` must outlive it.
  RunEvaluations(const RunOptions& options, BatchSampler data) : options_(options), data_(std::move(data)) {}

  // Goes on with these, and writes them to `directory` from now on, unless that is null; it must outlive this object.
  void begin(Evaluations evaluations, const RunDirectory* directory);

  bool is_due_after(std::int64_t step) const;
  // An evaluation is due before the first step, too, and where one was due when the run was stopped.
  bool is_due_before_first_step(std::int64_t done) const;
  // The loss of the state after `step`; nothing if it was interrupted, and then nothing is kept.
  std::optional<double> evaluate(std::int64_t step, Executor& executor);

  const std::optional<Evaluation>& best() const { return evaluations_.best(); }
  bool stops_early() const;
  std::string words_of_stop() const;  // "3 evaluations in a row without gain; the best was that of step 40, 2.5"

 private:
  const RunOptions& options_;
  BatchSampler data_;
  Evaluations evaluations_;
  const RunDirectory* directory_ = nullptr;
};

// Null for runs that do not evaluate; `trained` has read the data of training.
std::unique_ptr<RunEvaluations> evaluations_of_run(const RunOptions& options, std::int64_t seq_length, std::int64_t vocabulary,
                                                   const BatchSampler& trained);

}  // namespace spillway
