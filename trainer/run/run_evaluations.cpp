#include "trainer/run/run_evaluations.h"

#include <fmt/core.h>

#include <utility>

#include "trainer/host/interrupt.h"
#include "trainer/run/evaluation.h"
#include "trainer/words/quantity.h"

namespace spillway {

void RunEvaluations::begin(Evaluations evaluations, const RunDirectory* directory) {
  evaluations_ = std::move(evaluations);
  directory_ = directory;
  // A run that goes on from an earlier step has forgotten those after it.
  if (directory_ != nullptr && !evaluations_.empty()) write_evaluations(*directory_, evaluations_);
}

bool RunEvaluations::is_due_after(std::int64_t step) const {
  return step % options_.log.eval_interval == 0 || step == options_.batch.train_iters;
}

bool RunEvaluations::is_due_before_first_step(std::int64_t done) const {
  if (evaluations_.has(done)) return false;
  if (evaluations_.empty()) return done < options_.batch.train_iters;
  return is_due_after(done);
}

std::optional<double> RunEvaluations::evaluate(std::int64_t step, Executor& executor) {
  struct Interrupted {};
  try {
    const LossSum loss = loss_over(executor, data_, {options_.batch.micro_batch_size, options_.parallel.ranks}, [] {
      if (InterruptHandler::requested()) throw Interrupted();
    });
    evaluations_.add({step, loss.mean()});
    if (directory_ != nullptr) write_evaluations(*directory_, evaluations_);
    return loss.mean();
  } catch (const Interrupted&) {
    return std::nullopt;
  }
}

bool RunEvaluations::stops_early() const {
  const std::optional<std::int64_t>& patience = options_.stopping.patience;
  return patience && evaluations_.without_gain() >= *patience;
}

std::string RunEvaluations::words_of_stop() const {
  const std::optional<Evaluation>& best = evaluations_.best();
  return fmt::format("{} in a row without gain (--early-stopping-patience); {}",
                     counted(evaluations_.without_gain(), "evaluation"),
                     best ? fmt::format("the best was that of step {}, {:.4f}", best->step, best->loss) : "none was finite");
}

std::unique_ptr<RunEvaluations> evaluations_of_run(const RunOptions& options, std::int64_t seq_length, std::int64_t vocabulary,
                                                   const BatchSampler& trained) {
  if (!options.data.evaluates()) return nullptr;
  DataRequest request = evaluation_data(options, seq_length, vocabulary);
  request.micro_batches = 1;  // evaluation takes one at a time
  return std::make_unique<RunEvaluations>(options, request.is_held_back ? BatchSampler(request, trained) : BatchSampler(request));
}

}  // namespace spillway
