#include "trainer/plan/durability.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "memory/base/error.h"
#include "trainer/words/quantity.h"

namespace spillway {
namespace {

// Share of the time that copying the device's state may take if the user gives no interval.
constexpr double kCopyShare = 0.02;
// Shortest time between two durable steps if the user asks for nothing: two syncs should hide in it. Seconds.
constexpr double kLeastApart_s = 0.05;

std::int64_t interval_of(const RunOptions& options, const Plan& plan, double copy_s, double step_s) {
  if (const std::int64_t asked = options.memory.durability_interval; asked > 0) {
    if (asked > 1 && speculates(plan.choices)) {
      throw InputError(fmt::format(
          "--durability-interval: found {}, allowed: 1 where updates in the backward may be taken back (--clip-grad)", asked));
    }
    return asked;
  }
  if (speculates(plan.choices)) return 1;
  const double apart_s =
      options.memory.durability == Durability::automatic ? std::max(kLeastApart_s, copy_s / kCopyShare) : copy_s / kCopyShare;
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(std::ceil(apart_s / step_s)));
}

std::string loss(std::int64_t steps, double step_s) {
  return fmt::format("a kill loses up to {} ({})", counted(steps, "step"), rounded_seconds(static_cast<double>(steps) * step_s));
}

std::string loss_without(const RunOptions& options, double step_s) {
  const std::optional<std::int64_t> steps = steps_lost_without(options);
  if (steps) return loss(*steps, step_s);
  return options.checkpoint.save.empty() ? "a kill loses what no --save-interval N has saved"
                                         : "a kill loses the run, as there is no --save-interval N";
}

}  // namespace

double DurabilityPlan::bytes_per_step() const {
  return static_cast<double>(layout.copied_bytes + layout.place_bytes) / static_cast<double>(interval);
}

std::optional<DurabilityPlan> durability_of(const RunOptions& options, const PlanRequest& request, const PlanOutcome& outcome,
                                            const UnitGraph& graph, const MachineProfile& machine) {
  const bool asked = options.memory.durability == Durability::step;
  if (asked && options.memory.nvme.empty()) {
    throw InputError(
        "--durability: found step without --nvme, allowed: step together with --nvme DIR, where the state is made durable");
  }
  if (options.memory.durability == Durability::checkpoint || options.memory.nvme.empty() || !outcome.plan) return std::nullopt;
  const Plan& plan = *outcome.plan;
  if (!makes_durable(plan.choices)) {
    if (!asked) return std::nullopt;
    throw InputError(fmt::format("--durability step: the plan {} has one slot for state on nvme", options.memory.plan),
                     "Plan again with --durability step, or run it with --durability checkpoint.");
  }
  DurabilityPlan durability{.layout = durable_layout(plan, graph)};
  const Bytes budget = request.budgets[Tier::nvme];
  if (durability.layout.store_bytes > budget) {
    if (!asked) return std::nullopt;
    throw BudgetError(
        fmt::format(
            "--durability step needs {} bytes on nvme, {} of them for two copies of the state in memory, and there are {}",
            durability.layout.store_bytes, 2 * durability.layout.copied_bytes, budget),
        "Give --nvme more room, or use --durability checkpoint.");
  }
  durability.copy_s = static_cast<double>(durability.layout.copied_bytes) / std::max(machine.nvme_write_bytes, 1.0);
  durability.interval = interval_of(options, plan, durability.copy_s, outcome.prediction.step_s);
  return durability;
}

std::optional<std::int64_t> steps_lost_without(const RunOptions& options) {
  return options.checkpoint.save_interval > 0 ? std::optional(options.checkpoint.save_interval) : std::nullopt;
}

std::string durability_summary(const RunOptions& options, const PlanOutcome& outcome,
                               const std::optional<DurabilityPlan>& durability) {
  const double step_s = outcome.prediction.step_s;
  if (!durability) {
    const bool no_room = options.memory.durability == Durability::automatic && !options.memory.nvme.empty();
    return fmt::format("checkpoints only; {}{}", loss_without(options, step_s),
                       no_room ? "; --nvme has no room for two slots of the state, which would make each step durable"
                       : options.memory.nvme.empty() ? "; with --nvme DIR each step can be durable"
                                                     : "");
  }
  const DurableLayout& layout = durability->layout;
  std::string text = fmt::format("{}; {}; with --durability checkpoint {}",
                                 durability->interval == 1 ? "each step" : fmt::format("every {} steps", durability->interval),
                                 loss(durability->interval, step_s), loss_without(options, step_s));
  text += fmt::format("; the store takes {} and each durable step writes a record of {}", rounded_size(layout.store_bytes),
                      rounded_size(layout.place_bytes));
  if (layout.copied_bytes > 0) {
    text += fmt::format(" and copies {} of state from memory, {} of writing: {:.1f} % of the time",
                        rounded_size(layout.copied_bytes), rounded_seconds(durability->copy_s),
                        100 * durability->copy_s / (static_cast<double>(durability->interval) * step_s));
  }
  return text;
}

}  // namespace spillway
