#include "trainer/show/plan_report.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "files/strict_json.h"
#include "trainer/machine/profile_file.h"
#include "trainer/plan/bound_words.h"
#include "trainer/plan/disk_figures.h"
#include "trainer/plan/network_figures.h"
#include "trainer/plan/plan_figures.h"
#include "trainer/plan/plan_flags.h"
#include "trainer/plan/would_fit.h"
#include "trainer/words/place.h"
#include "trainer/words/quantity.h"

namespace spillway {
namespace {

std::string where(const std::vector<BlockPlace>& places, Tier BlockPlace::* array) {
  std::ptrdiff_t told = 0;
  std::string text;
  for (const auto& [name, tier] : Names<Tier>::all) {
    const std::ptrdiff_t blocks = count_of(places, array, tier);
    if (blocks == std::ssize(places)) return std::string(name);
    if (blocks == 0) continue;
    told += blocks;
    if (text.empty()) {
      text = fmt::format("{} of {} on {}", blocks, counted(std::ssize(places), "block"), in_words(tier));
    } else {
      text += fmt::format(", {} on {}", told == std::ssize(places) ? "the rest" : std::to_string(blocks), in_words(tier));
    }
  }
  return text;
}

std::string activations(const Choices& choices) {
  std::string text;
  for (const Saved saved : {Saved::keep, Saved::recompute, Saved::spill}) {
    const auto units = count_of(choices.units, &UnitPlace::saved, saved);
    if (units > 0) text += fmt::format("{}{} in {}", text.empty() ? "" : ", ", name_of(saved), counted(units, "unit"));
  }
  const auto spilled = count_of(choices.units, &UnitPlace::boundary, Boundary::spill);
  if (spilled > 0) text += fmt::format(", boundaries spilled in {}", counted(spilled, "unit"));
  return text;
}

std::string update_words(const Choices& choices) {
  const auto deferred = count_of(choices.blocks, &BlockPlace::deferred, Deferred::yes);
  return fmt::format("{}{}{}", name_of(choices.update),
                     has_host(choices.chain) ? fmt::format(" on {}", in_words(choices.update_tier)) : "",
                     deferred > 0 ? fmt::format(", of {} in the next forward", counted(deferred, "block")) : "");
}

// "ZeRO stage 3 in groups of 2"
std::string stage_of(const Sharding& sharding) {
  const std::string groups = sharding.group < sharding.ranks ? fmt::format(" in groups of {}", sharding.group) : "";
  return fmt::format("ZeRO stage {}{}", sharding.stage, groups);
}

}  // namespace

std::string plan_summary(const PlannedRun& run, const PreparedModel& model) {
  const Plan& plan = *run.outcome.plan;
  const Choices& choices = plan.choices;
  const Prediction& prediction = run.outcome.prediction;
  const UnitGraph& graph = model.of(plan).graph;
  const std::string trained =
      graph.trained_parameters == graph.parameters ? "" : fmt::format(", {} of them trained", graph.trained_parameters);
  std::string text = fmt::format("{} parameters{}, {}; {} order, update {}\n", graph.parameters, trained,
                                 counted(model.pool().threads(), "thread"), order_words(choices), update_words(choices));
  text += fmt::format("parameters: {}; optimizer: {}; activations: {}\n", where(choices.blocks, &BlockPlace::weight),
                      where(choices.blocks, &BlockPlace::optimizer), activations(choices));
  if (choices.sharding.ranks > 1)
    text += fmt::format("{} ranks, {}; {}\n", choices.sharding.ranks, stage_of(choices.sharding),
                        network_in_words(network_figures(plan, graph)));
  for (const Tier tier : tiers_of(choices.chain)) {
    const Bytes peak = plan.peak[tier], budget = run.request.budgets[tier];
    if (peak > 0) text += fmt::format("{}: {} of {}\n", name_of(tier), rounded_size(peak), rounded_size(budget));
  }
  if (plan.peak[Tier::nvme] > 0) text += fmt::format("drive: {}\n", drive_in_words(run.measured));
  const Bound bound = prediction.bound.of_step();
  text += fmt::format("predicted step: {:.3g} s, bound {:.3g} s by {}{}", prediction.step_s, bound.seconds, name_of(bound.lane()),
                      bound_name(bound) == "norm" ? ", as updates wait for the norm" : "");
  return text;
}

namespace {

constexpr int kColumns = 100;
constexpr int kNames = 9;  // columns of the names before facts and tiers

using Facts = std::vector<std::pair<std::string, std::string>>;

std::string ranks_of(const Sharding& sharding, const PlanFigures& figures) {
  double moved = 0;
  for (const LaneFigures& lane : figures.lanes) {
    if (lane.lane == Lane::network) moved = lane.work;
  }
  return fmt::format("{}, {}; tiers and lanes are those of one rank, which gathers and reduces {} a step", sharding.ranks,
                     stage_of(sharding), rounded_size(std::llround(moved)));
}

std::string as_others_store_it(const PeerFigures& peer, const Sharding& sharding) {
  std::string stages;
  if (sharding.ranks > 1) {
    for (const double bytes : peer.state_bytes_of_stage)
      stages += fmt::format("{}{}", stages.empty() ? " a rank (ZeRO 0 to 3: " : ", ", rounded_size(std::llround(bytes)));
    stages += ")";
  }
  return fmt::format("{} of weights, gradients and Adam state{}, and {} of activations a layer without recomputation",
                     rounded_size(std::llround(peer.state_bytes)), stages,
                     rounded_size(std::llround(peer.activation_bytes_per_layer)));
}

Facts choice_facts(const PlannedRun& run, const PreparedModel& model, const RunOptions& options) {
  const Plan& plan = *run.outcome.plan;
  const Choices& choices = plan.choices;
  const UnitGraph& graph = model.of(plan).graph;
  const std::string active = graph.active_parameters == graph.parameters
                                 ? ""
                                 : fmt::format(", {} of them for a token", with_commas(graph.active_parameters));
  const std::string trained = graph.trained_parameters == graph.parameters
                                  ? ""
                                  : fmt::format(", {} of them trained", with_commas(graph.trained_parameters));
  return {{"model", fmt::format("{}: {} parameters{}{}; {}, {} state; {} a step in {}", shell_word(options.model.model),
                                with_commas(graph.parameters), active, trained, name_of(graph.dtype),
                                choices.form == StateForm::compact ? "compact" : "exact",
                                counted(graph.rows * choices.micro_batches * choices.sharding.ranks, "token"),
                                counted(choices.micro_batches, "micro-batch", "micro-batches"))},
          {"machine", fmt::format("{}; {}", shown_name(run.machine.name), counted(run.machine.threads, "thread"))},
          {"choices", fmt::format("{} order; update {}; parameters: {}; optimizer: {}; activations: {}", order_words(choices),
                                  update_words(choices), where(choices.blocks, &BlockPlace::weight),
                                  where(choices.blocks, &BlockPlace::optimizer), activations(choices))}};
}

std::string binding_of_compute(const PlanFigures& figures) {
  if (!figures.tokens_until_compute_binds) return "never binds under these choices, however many tokens a step has";
  return fmt::format("{} from {} a step on (now {})", figures.bound.lane() == Lane::compute ? "binds" : "would bind",
                     counted(std::llround(*figures.tokens_until_compute_binds), "token"),
                     with_commas(std::llround(figures.tokens_per_step)));
}

std::string lift_words(const std::vector<Lift>& lifts) {
  std::string words;
  for (const Lift& lift : lifts) {
    words += fmt::format("{}{} with {} ({})", words.empty() ? "" : ", ", rounded_seconds(lift.step_s), fmt::join(lift.flags, " "),
                         lift.costs);
  }
  return words + ", as planned";
}

Facts step_facts(const PlannedRun& run, const PreparedModel& model, const PlanFigures& figures, const RunOptions& options) {
  Facts facts = {
      {"step", fmt::format("{}, {} tokens/s; MFU {:.1f} % of {}FLOP/s", rounded_seconds(figures.step_s),
                           with_commas(std::llround(figures.tokens_per_s)), 100 * figures.model_flops_utilization,
                           rounded_count(figures.best_matrix_flops))},
      {"bound", fmt::format("{} by {}: {}. No schedule of these choices is faster; the plan takes {:.2f} times as long",
                            rounded_seconds(figures.bound.seconds), name_of(figures.bound.lane()),
                            bound_words(figures.bound, run.outcome.plan->choices), figures.step_s / figures.bound.seconds)},
      {"compute", binding_of_compute(figures)}};
  if (!run.lifts.empty()) facts.emplace_back("faster", lift_words(run.lifts));
  if (figures.nvme_read_bytes + figures.nvme_written_bytes > 0) {
    const std::string durable = figures.durable_bytes > 0 ? fmt::format(", and {} so that it is durable",
                                                                        rounded_size(std::llround(figures.durable_bytes)))
                                                          : "";
    facts.emplace_back("nvme", fmt::format("{} read and {} written a step{}", rounded_size(figures.nvme_read_bytes),
                                           rounded_size(figures.nvme_written_bytes), durable));
  }
  if (figures.nvme_read_bytes + figures.nvme_written_bytes > 0) facts.emplace_back("drive", drive_in_words(run.measured));
  const DiskFigures disk = disk_figures_of(run, model, options, figures);
  facts.emplace_back("disk", disk_words(disk, options));
  facts.emplace_back("wear", wear_words(disk, figures.step_s, options));
  facts.emplace_back("kept", durability_summary(options, run.outcome, run.durability));
  if (run.request.sharding.ranks > 1) facts.emplace_back("ranks", ranks_of(run.request.sharding, figures));
  facts.emplace_back("others", as_others_store_it(peer_figures_of(run, model, options), run.request.sharding));
  return facts;
}

std::string lines_of(const Facts& facts) {
  std::string lines;
  for (const auto& [name, value] : facts) lines += fmt::format("{:<{}}{}\n", name, kNames, wrapped(value, kNames, kColumns));
  return lines;
}

std::string tier_lines(const PlannedRun& run) {
  const Plan& plan = *run.outcome.plan;
  const Budgets& budget = run.request.budgets;
  std::string lines = fmt::format("{:<{}}{:>11}{:>11}{:>7}  {}\n", "tier", kNames, "budget", "peak", "used", "of the peak");
  for (const Tier tier : tiers_of(plan.choices.chain)) {
    const Bytes peak = plan.peak[tier];
    if (peak == 0) continue;
    std::string parts;
    for (const auto& [name, category] : Names<Category>::all) {
      const Bytes bytes = plan.at_rest[tier][category];
      if (bytes > 0) parts += fmt::format("{}{} {}", parts.empty() ? "" : ", ", name, rounded_size(bytes));
    }
    lines +=
        fmt::format("{:<{}}{:>11}{:>11}{:>5.0f} %  {}\n", name_of(tier), kNames, rounded_size(budget[tier]), rounded_size(peak),
                    100.0 * static_cast<double>(peak) / static_cast<double>(budget[tier]), wrapped(parts, kNames + 31, kColumns));
  }
  return lines;
}

std::string lane_lines(const PlanFigures& figures) {
  constexpr double kBar = 34;  // columns of a lane that is always busy
  std::string lines = fmt::format("{:<11}{:>13}{:>16}{:>11}{:>9}\n", "lane", "work", "rate", "busy", "of step");
  for (const LaneFigures& lane : figures.lanes) {
    lines += fmt::format("{:<11}{:>13}{:>16}{:>11}{:>7.0f} %  {}\n", name_of(lane.lane), work_of(lane), rate_of(lane),
                         rounded_seconds(lane.busy_s), 100 * lane.share,
                         std::string(static_cast<std::size_t>(std::lround(kBar * std::min(1.0, lane.share))), '#'));
  }
  return lines;
}

// Breaks lines only before flags, so that the command can be pasted.
std::string command_lines(const std::vector<std::string>& flags) {
  std::string lines = "spillway train";
  std::size_t used = lines.size();
  for (const std::string& flag : flags) {
    if (used + 1 + flag.size() + 2 > kColumns) {
      lines += " \\\n   ";
      used = 3;
    }
    lines += " " + flag;
    used += 1 + flag.size();
  }
  return lines + "\n";
}

}  // namespace

std::string work_of(const LaneFigures& lane) {
  return lane.computes() ? rounded_count(lane.work) + "FLOP" : rounded_size(static_cast<Bytes>(lane.work));
}
std::string rate_of(const LaneFigures& lane) {
  return lane.computes() ? rounded_count(lane.rate()) + "FLOP/s" : rounded_size(static_cast<Bytes>(lane.rate())) + "/s";
}

std::vector<std::pair<std::string, std::string>> plan_facts(const PlannedRun& run, const PreparedModel& model,
                                                            const RunOptions& options) {
  Facts facts = choice_facts(run, model, options);
  for (auto& fact : step_facts(run, model, figures_of(run, model), options)) facts.push_back(std::move(fact));
  return facts;
}

std::string lacks(const PlanOutcome& outcome) {
  return fmt::format("the {} tier needs {} and has {}: {} bytes too few", name_of(outcome.short_tier),
                     rounded_size(outcome.needed), rounded_size(outcome.budget), with_commas(outcome.needed - outcome.budget));
}

std::string plan_table(const PlannedRun& run, const PreparedModel& model, const RunOptions& options) {
  if (!run.outcome.plan) return fmt::format("does not fit: {}\n{}\n", lacks(run.outcome), words_of(run.would_fit));
  const PlanFigures figures = figures_of(run, model);
  return fmt::format("{}\n{}\n{}\n{}\n{}", lines_of(choice_facts(run, model, options)), tier_lines(run), lane_lines(figures),
                     lines_of(step_facts(run, model, figures, options)), command_lines(plan_flags(run, model, options)));
}

}  // namespace spillway
