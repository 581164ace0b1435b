#include "trainer/evaluation_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "memory/error.h"
#include "memory/packing.h"
#include "memory/schedule.h"
#include "memory/waits.h"
#include "trainer/progress.h"

namespace spillway {
namespace {

Plan with_weights_on_device(const UnitGraph& graph, StateForm form, int blocks_on_device) {
  const std::size_t blocks = graph.blocks.size(), units = graph.units.size();
  Choices choices;
  choices.form = form;
  choices.clip = false;
  choices.weight_tier.assign(blocks, Tier::nvme);
  std::fill_n(choices.weight_tier.begin(), blocks_on_device, Tier::device);
  choices.optimizer_tier.assign(blocks, Tier::device);
  choices.gradient_tier.assign(blocks, Tier::device);
  choices.saved.assign(units, Saved::keep);
  choices.boundary.assign(units, Boundary::keep);
  Plan plan = build_schedule(graph, choices);
  plan.evaluate = build_evaluation(graph, plan);
  plan.step = {};
  plan.flush = {};
  // Buffers that only a training step touches take no room.
  for (const auto& state : plan.state_buffer) {
    for (const StateKind kind : {StateKind::low, StateKind::m, StateKind::v}) {
      if (const int index = state[static_cast<int>(kind)]; index >= 0) plan.resident[index].bytes = 0;
    }
  }
  for (const int index : plan.gradient_buffer) {
    if (index >= 0) plan.resident[index].bytes = 0;
  }
  pack(plan);
  return plan;
}

}  // namespace

Plan evaluation_plan(const UnitGraph& graph, StateForm form, const Budgets& budgets) {
  const auto device_of = [](const Plan& plan) { return plan.peak[static_cast<int>(Tier::device)]; };
  const auto nvme_of = [](const Plan& plan) { return plan.peak[static_cast<int>(Tier::nvme)]; };
  const auto build = [&](int blocks) { return with_weights_on_device(graph, form, blocks); };
  const auto fits = [&](const Plan& plan) { return device_of(plan) <= budgets.device && nvme_of(plan) <= budgets.nvme; };
  const int blocks = static_cast<int>(graph.blocks.size());
  Plan plan = build(blocks);
  if (!fits(plan) && budgets.nvme > 0) {
    // More blocks on the device: more of it, less of NVMe. The largest number that the device holds.
    int low = 0, high = blocks;
    while (low + 1 < high) {
      const int middle = (low + high) / 2;
      (device_of(build(middle)) <= budgets.device ? low : high) = middle;
    }
    plan = build(low);
  }
  if (!fits(plan)) {
    const bool device = device_of(plan) > budgets.device;
    const Bytes needed = device ? device_of(plan) : nvme_of(plan), budget = device ? budgets.device : budgets.nvme;
    throw BudgetError(fmt::format("evaluation does not fit: the {} tier needs {} bytes ({}) and has {} ({})", device ? "device" : "nvme", needed, rounded_size(needed), budget, rounded_size(budget)),
                      budgets.nvme == 0 ? "Give more --device-memory, a --nvme directory, shorter sequences or a smaller --micro-batch-size." : "Give more of it, shorter sequences or a smaller --micro-batch-size.");
  }
  derive_waits(plan);
  return plan;
}

}  // namespace spillway
