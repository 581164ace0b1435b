#include "trainer/durability.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "memory/error.h"
#include "trainer/progress.h"

namespace spillway {
namespace {

// Share of the time that copying state on the device may take where the user does not say how often.
constexpr double kCopyShare = 0.02;

std::int64_t interval_of(const RunOptions& options, const Plan& plan, double copy_s, double step_s) {
  if (const std::int64_t asked = options.memory.durability_interval; asked > 0) {
    if (asked > 1 && speculates(plan.choices)) {
      throw InputError(fmt::format("--durability-interval: found {}, allowed: 1 where updates in the backward may be taken back (--clip-grad)", asked));
    }
    return asked;
  }
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(std::ceil(copy_s / (kCopyShare * step_s))));
}

}  // namespace

std::vector<std::string> paths_of(const std::vector<NvmeDirectory>& directories) {
  std::vector<std::string> paths;
  for (const NvmeDirectory& directory : directories) paths.push_back(std::filesystem::absolute(directory.path).lexically_normal().string());
  return paths;
}

std::optional<DurabilityPlan> durability_of(const RunOptions& options, const PlannedRun& run, const PreparedModel& model) {
  const bool asked = options.memory.durability == DurabilityChoice::step;
  if (asked && options.memory.nvme.empty()) {
    throw InputError("--durability: found step without --nvme, allowed: step together with --nvme DIR, where the state is made durable");
  }
  if (!asked || options.checkpoint.save.empty()) return std::nullopt;
  const Plan& plan = *run.outcome.plan;
  DurabilityPlan durability{.layout = durable_layout(plan, model.of(plan).graph)};
  const Bytes budget = run.request.budgets.nvme;
  if (durability.layout.store_bytes > budget) {
    throw BudgetError(fmt::format("--durability step needs {} bytes on nvme, {} of them for two copies of the state on the device, and there are {}",
                                  durability.layout.store_bytes, 2 * durability.layout.copied_bytes, budget),
                      "Give --nvme more room, or use --durability checkpoint.");
  }
  durability.copy_s = static_cast<double>(durability.layout.copied_bytes) / std::max(run.machine.nvme_write_bytes, 1.0);
  durability.interval = interval_of(options, plan, durability.copy_s, run.outcome.prediction.step_s);
  return durability;
}

std::string durability_summary(const RunOptions& options, const PlannedRun& run, const std::optional<DurabilityPlan>& durability) {
  const double step_s = run.outcome.prediction.step_s;
  if (!durability) {
    const std::int64_t interval = options.checkpoint.save_interval;
    if (options.checkpoint.save.empty()) return "durability: nothing is kept without --save";
    if (interval == 0) return "durability: a kill loses the run; --save-interval N keeps a checkpoint on the way";
    return fmt::format("durability: checkpoint; a kill loses up to {} steps, {:.3g} s", interval, static_cast<double>(interval) * step_s);
  }
  // An update that waits for the next forward becomes durable with the step after it.
  const std::int64_t at_most = durability->interval + (run.outcome.plan->choices.update == UpdateTime::in_next_forward ? 1 : 0);
  std::string text = fmt::format("durability: {}; a kill loses up to {} steps, {:.3g} s", durability->interval == 1 ? "each step" : fmt::format("every {} steps", durability->interval),
                                 at_most, static_cast<double>(at_most) * step_s);
  if (durability->layout.copied_bytes > 0) {
    text += fmt::format("; {} of state on the device are copied to nvme each time, {:.3g} s of writing", rounded_size(durability->layout.copied_bytes), durability->copy_s);
  }
  return text;
}

}  // namespace spillway
