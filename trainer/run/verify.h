// Compares two plans of one run: runs the same steps under the given plan and under another one, and checks that losses, gradient
// norms and the final state have the same bits.
// Not here: how a plan runs (step_loop.h), how state is compared (trainer/keep/state_compare.h).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/keep/state_compare.h"
#include "trainer/options/options.h"
#include "trainer/plan/prepared_model.h"

namespace spillway {

struct VerifiedStep {
  std::int64_t step = 0;                   // from 1
  double loss[2] = {}, grad_norm[2] = {};  // under the first plan and under the second
  bool equal() const;                      // bit for bit
};

struct VerifyResult {
  std::vector<std::string> plans_differ;  // the differences: "order: vertical, horizontal"
  std::vector<VerifiedStep> steps;
  std::optional<StateDifference> state;
  std::string verdict;  // one line
  bool equal() const;
};

using Say = std::function<void(std::string_view line)>;
// For tests that a difference is found: called before each run's first step (run 0 or 1).
using Disturb = std::function<void(int run, Executor& executor, const UnitGraph& graph)>;

// Throws InputError if no second plan fits that differs from the first, and NotFiniteError if a step stops.
VerifyResult verify(const RunOptions& options, std::int64_t steps, const Say& say, const Disturb& disturb = {});

// The differences of two plans of one model, apart from offsets. Empty if they are the same program.
std::vector<std::string> differences(const Plan& first, const Plan& second);

// The same as verify's lines, in JSON.
std::string verify_json(const VerifyResult& result);

}  // namespace spillway
