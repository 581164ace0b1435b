#include "trainer/plan/evaluation_plan.h"

#include <fmt/core.h>

#include <algorithm>

#include "memory/error.h"
#include "memory/passes/packing.h"
#include "memory/passes/schedule.h"
#include "memory/passes/validate.h"
#include "memory/passes/waits.h"
#include "trainer/options/options.h"
#include "trainer/words/quantity.h"

namespace spillway {
namespace {

Plan with_weights_on_device(const UnitGraph& graph, StateForm form, int blocks_on_device) {
  Choices choices;
  choices.form = form;
  choices.clip = false;
  if (blocks_on_device < std::ssize(graph.blocks)) choices.ahead = 2 * largest_weights(graph, form);
  choices.weight_tier.assign(graph.blocks.size(), Tier::nvme);
  std::fill_n(choices.weight_tier.begin(), blocks_on_device, Tier::device);
  Plan plan = build_inference(graph, choices);
  pack(plan);
  return plan;
}

}  // namespace

Plan evaluation_plan(const UnitGraph& graph, DType type, const Budgets& budgets, PlanPurpose purpose) {
  const auto build = [&](int blocks) { return with_weights_on_device(graph, form_of({.dtype = type}), blocks); };
  const int blocks = static_cast<int>(graph.blocks.size());
  Plan plan = build(blocks);
  if (short_tier(plan.peak, budgets) && budgets[Tier::nvme] > 0) {
    // More blocks on the device: more of it, less of NVMe. The largest number that the device holds.
    int low = 0, high = blocks;
    while (low + 1 < high) {
      const int middle = (low + high) / 2;
      (build(middle).peak[Tier::device] <= budgets[Tier::device] ? low : high) = middle;
    }
    plan = build(low);
  }
  if (const std::optional<Tier> lacks = short_tier(plan.peak, budgets)) {
    const Bytes needed = plan.peak[*lacks], budget = budgets[*lacks];
    throw BudgetError(fmt::format("{} does not fit: the {} tier needs {} bytes ({}) and has {} ({})", purpose.name,
                                  name_of(*lacks), needed, rounded_size(needed), budget, rounded_size(budget)),
                      budgets[Tier::nvme] == 0
                          ? fmt::format("Give more --device-memory, a --nvme directory, {}.", purpose.smaller)
                          : fmt::format("Give more of it, {}.", purpose.smaller));
  }
  derive_waits(plan);
  validate(plan, graph);
  return plan;
}

}  // namespace spillway
