#include "trainer/plan_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "trainer/plan_file.h"
#include "trainer/progress.h"

namespace spillway {
namespace {

template <typename T>
std::ptrdiff_t count_of(const std::vector<T>& values, T value) {
  return std::count(values.begin(), values.end(), value);
}

std::string where(const std::vector<Tier>& tiers) {
  const auto device = count_of(tiers, Tier::device), nvme = count_of(tiers, Tier::nvme);
  if (nvme == 0) return "device";
  if (device == 0) return "nvme";
  return fmt::format("{} of {} blocks on the device, the rest on nvme", device, tiers.size());
}

std::string activations(const Choices& choices) {
  std::string text;
  for (const Saved saved : {Saved::keep, Saved::recompute, Saved::spill}) {
    const auto units = count_of(choices.saved, saved);
    if (units > 0) text += fmt::format("{}{} in {} units", text.empty() ? "" : ", ", name_of(saved), units);
  }
  const auto spilled = count_of(choices.boundary, Boundary::spill);
  if (spilled > 0) text += fmt::format(", boundaries spilled in {} units", spilled);
  return text;
}

}  // namespace

std::string plan_summary(const PlannedRun& run, const PreparedModel& model) {
  const Plan& plan = *run.outcome.plan;
  const Choices& choices = plan.choices;
  const Prediction& prediction = run.outcome.prediction;
  const UnitGraph& graph = model.of(plan).graph;
  std::string text = fmt::format("{} parameters, {} threads; {} order, update {}\n", graph.parameters, model.pool().threads(),
                                 name_of(choices.order), name_of(choices.update));
  text += fmt::format("parameters: {}; optimizer: {}; activations: {}\n", where(choices.weight_tier), where(choices.optimizer_tier), activations(choices));
  for (const Tier tier : {Tier::device, Tier::nvme}) {
    const Bytes peak = plan.peak[static_cast<int>(tier)];
    const Bytes budget = tier == Tier::device ? run.request.budgets.device : run.request.budgets.nvme;
    if (peak > 0) text += fmt::format("{}: {} of {}\n", name_of(tier), rounded_size(peak), rounded_size(budget));
  }
  text += fmt::format("predicted step: {:.3g} s, bound {:.3g} s by {}", prediction.step_s, prediction.bound_s, name_of(prediction.binding_lane));
  return text;
}

std::string plan_table(const PlannedRun& run, const PreparedModel& model, const RunOptions& options) {
  if (!run.outcome.plan) return {};
  const Plan& plan = *run.outcome.plan;
  const Prediction& prediction = run.outcome.prediction;
  const UnitGraph& graph = model.of(plan).graph;
  std::string text = plan_summary(run, model) + "\n\n";
  text += fmt::format("{:<8}{:>12}{:>12}  {}\n", "tier", "budget", "peak", "of the peak");
  const std::array<Bytes, kTiers> budget = {run.request.budgets.device, run.request.budgets.host, run.request.budgets.nvme};
  for (int t = 0; t < kTiers; ++t) {
    if (plan.peak[t] == 0) continue;
    std::string parts;
    for (int c = 0; c < kCategories; ++c) {
      const Bytes bytes = plan.at_rest[t][c];
      if (bytes > 0) parts += fmt::format("{}{} {}", parts.empty() ? "" : ", ", name_of(static_cast<Category>(c)), rounded_size(bytes));
    }
    text += fmt::format("{:<8}{:>12}{:>12}  {}\n", name_of(static_cast<Tier>(t)), rounded_size(budget[t]), rounded_size(plan.peak[t]), parts);
  }
  text += fmt::format("\n{:<12}{:>10}{:>10}\n", "lane", "busy", "of step");
  for (int lane = 0; lane < kLanes; ++lane) {
    const double busy = prediction.busy_s[lane];
    if (busy > 0) text += fmt::format("{:<12}{:>8.3f} s{:>8.0f} %\n", name_of(static_cast<Lane>(lane)), busy, 100 * busy / prediction.step_s);
  }
  const double tokens = static_cast<double>(graph.rows * plan.choices.micro_batches);
  text += fmt::format("\nstep {:.3f} s, {:.0f} tokens/s; bound {:.3f} s ({:.0f} % of the step) by {}\n", prediction.step_s, tokens / prediction.step_s,
                      prediction.bound_s, 100 * prediction.bound_s / prediction.step_s, name_of(prediction.binding_lane));
  text += "\nspillway train " + plan_flags(options, model, run.request.budgets) + "\n";
  return text;
}

}  // namespace spillway
