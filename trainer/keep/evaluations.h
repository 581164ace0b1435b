// The evaluations of a run: which was the best, and how many have come since without gain. Its directory keeps them in best.json,
// so that a run that was stopped goes on as one that was not.
// Not here: the evaluation itself (trainer/run/run_evaluations.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainer/keep/run_directory.h"

namespace spillway {

struct Evaluation {
  std::int64_t step = 0;  // steps done; 0: before the first
  double loss = 0;        // may be not finite
};

class Evaluations {
 public:
  // `threshold`: what a loss must be below the best one to be a gain. `data`: a hash of what is evaluated on.
  explicit Evaluations(double threshold = 0, std::uint64_t data = 0) : threshold_(threshold), data_(data) {}

  // Steps ascend. As transformers' EarlyStoppingCallback counts: the best is the lowest loss by however little, and an evaluation
  // is without gain if it is not below the best one before it by more than the threshold. A loss that is not finite is no gain.
  void add(Evaluation evaluation);

  bool has(std::int64_t step) const;
  bool empty() const { return all_.empty(); }
  const std::optional<Evaluation>& best() const { return best_; }
  std::int64_t without_gain() const { return without_gain_; }  // the last ones, in a row

  std::string json_text() const;  // of best.json

 private:
  double threshold_;
  std::uint64_t data_;
  std::vector<Evaluation> all_;
  std::optional<Evaluation> best_;
  std::int64_t without_gain_ = 0;
};

// Those of a run up to a step, counted with this threshold. None where the run has no best.json, or evaluated on other data.
Evaluations evaluations_up_to(const std::string& run_directory, std::int64_t step, double threshold, std::uint64_t data);
void write_evaluations(const RunDirectory& directory, const Evaluations& evaluations);

// A --step as it was typed: empty, a step, or "best", which is that of the run's best evaluation. Throws InputError for other
// words, for "best" where the run has no evaluation, and where its checkpoint was not kept.
std::optional<std::int64_t> step_asked(const std::string& typed, const std::string& run_directory);

}  // namespace spillway
