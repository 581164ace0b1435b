#include "trainer/plan/prepared_run.h"

#include <fmt/core.h>

#include <utility>

#include "memory/base/error.h"
#include "trainer/host/host.h"
#include "trainer/machine/probe.h"
#include "trainer/plan/saved_plan.h"
#include "trainer/plan/would_fit.h"
#include "trainer/words/quantity.h"

namespace spillway {
namespace {

MeasuredProfile measured_machine(const RunOptions& options, const PreparedModel& model, const LogSink& say) {
  if (options.memory.plan.empty()) return profile_for(options, model.pool(), say);
  if (auto profile = profile_at_hand(options, model.pool().threads())) return *std::move(profile);
  if (auto profile = machine_of_plan(options.memory.plan)) return *std::move(profile);
  return profile_for(options, model.pool(), say);  // plans of older versions do not name their machine
}

}  // namespace

PlannedRun plan_run(const RunOptions& options, const PreparedModel& model, Where where, const LogSink& say) {
  PlannedRun run = plan_run_on(measured_machine(options, model, say), options, model, where);
  if (!run.outcome.plan) run.would_fit = flags_that_fit(run, model, options);
  return run;
}

void throw_does_not_fit(const PlannedRun& run, const By<Tier, std::string>& whose) {
  const PlanOutcome& outcome = run.outcome;
  const std::string& rank = whose[outcome.short_tier];
  const std::string limits = in_memory(outcome.short_tier) && rank.empty() ? memory_limits_in_words() : "";
  throw BudgetError(fmt::format("the run does not fit: the {} tier{}{} needs {} bytes ({}) and has {} ({}), {} bytes too few{}",
                                name_of(outcome.short_tier), rank.empty() ? "" : " of ", rank, outcome.needed,
                                rounded_size(outcome.needed), outcome.budget, rounded_size(outcome.budget),
                                outcome.needed - outcome.budget, limits.empty() ? "" : fmt::format(" (limits: {})", limits)),
                    words_of(run.would_fit));
}

}  // namespace spillway
