#include "trainer/plan/evaluation_plan.h"

#include <fmt/core.h>

#include <algorithm>
#include <functional>

#include "memory/base/error.h"
#include "memory/passes/packing.h"
#include "memory/passes/schedule.h"
#include "memory/passes/validate.h"
#include "memory/passes/waits.h"
#include "trainer/options/options.h"
#include "trainer/words/quantity.h"

namespace spillway {
namespace {

// Number of blocks that rest on the device, and of the next ones that rest on the host; all others rest on NVMe.
struct Resting {
  int on_device = 0, on_host = 0;
};

Plan with_weights_resting(const UnitGraph& graph, StateForm form, Chain chain, const Resting& resting) {
  Choices choices;
  choices.form = form;
  choices.chain = chain;
  choices.clip = false;
  if (resting.on_device < std::ssize(graph.blocks)) choices.ahead = 2 * largest_weights(graph, form);
  for (int block = 0; block < std::ssize(graph.blocks); ++block) {
    const bool on_device = block < resting.on_device, on_host = block < resting.on_device + resting.on_host;
    choices.blocks.push_back({.weight = on_device ? Tier::device : on_host ? Tier::host : Tier::nvme});
  }
  choices.units.resize(graph.units.size());
  Plan plan = build_inference(graph, choices);
  pack(plan);
  return plan;
}

// The largest number in [0, most] that fits, if every smaller one fits, too; 0 is assumed to fit.
int largest_that_fits(int most, const std::function<bool(int)>& fits) {
  int low = 0, high = most + 1;
  while (low + 1 < high) {
    const int middle = (low + high) / 2;
    (fits(middle) ? low : high) = middle;
  }
  return low;
}

}  // namespace

Plan evaluation_plan(const UnitGraph& graph, DType type, const Budgets& budgets, PlanPurpose purpose) {
  const Chain chain = budgets[Tier::host] > 0 ? Chain::device_host_nvme : Chain::device_nvme;
  const auto build = [&](const Resting& resting) {
    return with_weights_resting(graph, form_of({.dtype = type}), chain, resting);
  };
  const int blocks = static_cast<int>(graph.blocks.size());
  const auto below = [&](int on_device) { return has_host(chain) ? blocks - on_device : 0; };
  Plan plan = build({blocks, 0});
  if (short_tier(plan.peak, budgets) && (budgets[Tier::nvme] > 0 || has_host(chain))) {
    // Blocks that the device has no room for rest on its host, and blocks that the host has no room for rest on NVMe.
    Resting resting;
    resting.on_device = largest_that_fits(
        blocks - 1, [&](int count) { return build({count, below(count)}).peak[Tier::device] <= budgets[Tier::device]; });
    resting.on_host = below(resting.on_device);
    if (has_host(chain) && budgets[Tier::nvme] > 0) {
      resting.on_host = largest_that_fits(
          resting.on_host, [&](int count) { return build({resting.on_device, count}).peak[Tier::host] <= budgets[Tier::host]; });
    }
    plan = build(resting);
  }
  if (const std::optional<Tier> lacks = short_tier(plan.peak, budgets)) {
    const Bytes needed = plan.peak[*lacks], budget = budgets[*lacks];
    throw BudgetError(fmt::format("{} does not fit: the {} tier needs {} bytes ({}) and has {} ({})", purpose.name,
                                  name_of(*lacks), needed, rounded_size(needed), budget, rounded_size(budget)),
                      budgets[Tier::nvme] == 0
                          ? fmt::format("Give more --{}-memory, a --nvme directory, {}.", name_of(*lacks), purpose.smaller)
                          : fmt::format("Give more of it, {}.", purpose.smaller));
  }
  derive_waits(plan);
  validate(plan, graph);
  return plan;
}

}  // namespace spillway
