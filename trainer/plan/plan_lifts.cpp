#include "trainer/plan/plan_lifts.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "memory/base/freed_memory.h"
#include "trainer/host/at_once.h"
#include "trainer/machine/rate_table.h"
#include "trainer/plan/budgets.h"
#include "trainer/words/place.h"
#include "trainer/words/size.h"

namespace spillway {
namespace {

constexpr double kGains = 1.03;   // smaller gains are not worth a line
constexpr double kHidden = 1.05;  // of compute's own time: below this only compute is left to speed up

// Making a plan with many operations takes a while: for up to `operations`, the effort of each alternative's search and the
// number of alternatives.
struct Patience {
  std::size_t operations;
  double effort;  // share of the effort that the plan's own search may take
  std::size_t alternatives;
};
constexpr Patience kPatience[] = {{5'000, 0.25, 4}, {40'000, 0.1, 4}, {std::numeric_limits<std::size_t>::max(), 0, 2}};

struct Alternative {
  Lift lift;
  PlanRequest request;
  MachineProfile machine;
};

void double_drive(MachineProfile& machine) {
  for (const MachineRate& rate : kMachineRates) {
    if (rate.of == RateOf::drive) machine.*rate.rate *= 2;
  }
}

std::vector<Alternative> alternatives_to(const PlannedRun& run) {
  const Choices& choices = run.outcome.plan->choices;
  // The best choices for the present plan are near enough to the best for the alternatives, and leave a short search little to
  // weigh.
  PlanRequest asked = run.request;
  const Patience& patience = *std::ranges::lower_bound(kPatience, run.outcome.plan->step.ops.size(), {}, &Patience::operations);
  asked.effort = patience.effort;
  asked.like = {run.outcome.outline, run.outcome.filled, &*run.outcome.plan};
  asked.goal = Goal::time;
  asked.group = choices.group;
  asked.update = choices.update;
  std::vector<Alternative> alternatives;
  const auto add = [&](Lift lift) -> Alternative& {
    alternatives.push_back({std::move(lift), asked, run.machine});
    return alternatives.back();
  };
  const std::string_view no_clipping = "no clipping, which changes the training",
                         from_checkpoints = "a kill loses what was done since the last checkpoint";
  const bool may_follow = !run.request.update && !may_overflow(choices.form),
             waits = choices.clip && choices.update != UpdateTime::in_backward && may_follow, durable = choices.slots == 2;
  const auto stop_clipping = [](PlanRequest& request) { request.clip = false, request.update = UpdateTime::in_backward; };
  if (waits) stop_clipping(add({.flags = {"--clip-grad 0"}, .costs = std::string(no_clipping)}).request);
  if (run.request.budgets[Tier::nvme] > 0) {
    Alternative& other = add({.flags = {"--nvme DIR"}, .costs = "a further directory, on another drive as fast"});
    other.request.budgets[Tier::nvme] *= 2;
    double_drive(other.machine);
  }
  if (durable) {
    Alternative& other = add({.flags = {"--durability checkpoint"}, .costs = std::string(from_checkpoints)});
    other.request.durability = Durability::checkpoint;
    if (waits) {
      other.lift.flags.insert(other.lift.flags.begin(), "--clip-grad 0");
      other.lift.costs = fmt::format("{}; {}", no_clipping, from_checkpoints);
      stop_clipping(other.request);
    }
  }
  for (const Tier tier : tiers_of(run.request.chain)) {
    const bool is_as_it_is = tier == Tier::device && has_memory_below(run.request.chain);  // a device of its own has fixed memory
    if (!in_memory(tier) || is_as_it_is) continue;
    const Bytes twice = 2 * run.request.budgets[tier];
    const std::string size = exact_size(of_flag(tier, twice, asked.sharding.ranks));
    add({.flags = {fmt::format("--{}-memory {}", name_of(tier), size)},
         .costs = tier == Tier::device ? "twice the memory" : fmt::format("twice {}'s memory", in_words(tier))})
        .request.budgets[tier] = twice;
  }
  alternatives.resize(std::min(alternatives.size(), patience.alternatives));
  return alternatives;
}

// Sets the planned times, if a plan is found.
void plan(Alternative& alternative, const PreparedModel& model) {
  const PlanOutcome outcome = make_plan(model.graphs(), alternative.machine, alternative.request);
  if (outcome.prediction.step_s <= 0) return;
  alternative.lift.step_s = outcome.prediction.step_s;
  alternative.lift.bound_s = outcome.prediction.bound.of_step().seconds;
}

}  // namespace

std::vector<Lift> lifts_of(const PlannedRun& run, const PreparedModel& model, const RunOptions& options) {
  if (!run.outcome.plan || !options.memory.plan.empty()) return {};
  const Prediction& prediction = run.outcome.prediction;
  if (prediction.step_s <= kHidden * prediction.busy_s[Lane::compute]) return {};
  std::vector<Alternative> alternatives = alternatives_to(run);
  const FreedMemoryKept freed_memory;
  const auto plan_every_other = [&](std::size_t first) {
    for (std::size_t i = first; i < alternatives.size(); i += 2) plan(alternatives[i], model);
  };
  at_once([&] { plan_every_other(0); }, [&] { plan_every_other(1); });
  std::vector<Lift> lifts;
  for (Alternative& alternative : alternatives) {
    if (alternative.lift.step_s > 0 && kGains * alternative.lift.step_s <= prediction.step_s)
      lifts.push_back(std::move(alternative.lift));
  }
  std::ranges::stable_sort(lifts, {}, &Lift::step_s);
  return lifts;
}

}  // namespace spillway
