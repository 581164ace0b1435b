#include "trainer/show/plan_page.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "trainer/plan/plan_figures.h"
#include "trainer/plan/plan_flags.h"
#include "trainer/plan/tier_picture.h"
#include "trainer/plan/would_fit.h"
#include "trainer/show/page.h"
#include "trainer/show/plan_report.h"
#include "trainer/words/quantity.h"

namespace spillway {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kColumnsOfPicture = 1200;  // about one for each pixel

Json tiles_of(const PlanFigures& figures) {
  Json tiles = Json::array();
  const auto add = [&](const std::string& name, const std::string& value) { tiles.push_back(Json::array({name, value})); };
  add("a step", rounded_seconds(figures.step_s));
  add("tokens a second", with_commas(std::llround(figures.tokens_per_s)));
  add("model FLOPs utilization", fmt::format("{:.1f} %", 100 * figures.model_flops_utilization));
  add(fmt::format("lower bound, by {}", name_of(figures.bound.lane())), rounded_seconds(figures.bound.seconds));
  add("of the bound", fmt::format("{:.2f} x", figures.step_s / figures.bound.seconds));
  return tiles;
}

Json tiers_of(const PlannedRun& run) {
  const Plan& plan = *run.outcome.plan;
  const Prediction& prediction = run.outcome.prediction;
  const Budgets& budget = run.request.budgets;
  const StepUse use = step_use(plan);
  Json list = Json::array(), categories = Json::array();
  for (const auto& [name, _] : Names<Category>::all) categories.push_back(name);
  for (const auto& [name, tier] : Names<Tier>::all) {
    if (plan.peak[tier] == 0) continue;
    list.push_back({{"name", name},
                    {"budget_bytes", budget[tier]},
                    {"peak_bytes", plan.peak[tier]},
                    {"columns", tier_picture(use, prediction.timeline.spans, prediction.step_s, tier, kColumnsOfPicture)}});
  }
  return {{"note", "Bytes in use while steps follow one another, as planned."},
          {"step_ns", prediction.step_s * 1e9},
          {"categories", categories},
          {"list", list}};
}

Json timeline_of(const PlannedRun& run, const UnitGraph& graph) {
  const Plan& plan = *run.outcome.plan;
  std::vector<ShownOperation> operations;
  const std::vector<Span>& spans = run.outcome.prediction.timeline.spans;
  const int turns = turns_of(plan.choices);
  for (std::size_t i = 0; i < spans.size(); ++i) {
    const auto& [op, turn] = op_of_span(plan, i);
    const std::string_view of = op.unit >= 0    ? std::string_view(graph.units[op.unit].name)
                                : op.block >= 0 ? std::string_view(graph.blocks[op.block].name)
                                                : std::string_view();
    operations.push_back({.kind = name_of(op),
                          .lane = name_of(op.lane),
                          .of = of,
                          .micro_batch = op.strip.first < 0 ? -1 : turn * plan.choices.group + op.strip.first,
                          .bytes = op.bytes,
                          .planned = spans[i],
                          .recorded = std::nullopt});
  }
  return timeline_data(operations, std::array{TimelineMark{run.outcome.prediction.step_s, "one step's time"}},
                       "The operations of one step among equal ones, as predicted. What runs past one step's time runs beside "
                       "the next step's beginning. "
                       "Point at an operation; drag to move; turn the wheel with Ctrl or Shift to look closer." +
                           words_of_turns(turns));
}

Json lanes_table(const PlanFigures& figures) {
  constexpr std::array<std::string_view, 5> columns = {"lane", "work a step#", "rate#", "busy#", "share of the step#"};
  std::vector<std::vector<std::string>> rows;
  for (const LaneFigures& lane : figures.lanes) {
    rows.push_back({std::string(name_of(lane.lane)), work_of(lane), rate_of(lane), rounded_seconds(lane.busy_s),
                    fmt::format("{:.0f} %", 100 * lane.share)});
  }
  return table_data("Lanes in figures",
                    "Work at the lane's own rate. Lanes run beside one another, so shares do not add up to 100 %.", columns,
                    rows);
}

Json tiers_table(const PlannedRun& run) {
  constexpr std::array<std::string_view, 4 + kAll<Category>.size()> columns = {
      "tier", "budget#", "peak#", "used#", "parameters#", "optimizer#", "gradients#", "activations#", "staging#"};
  const Plan& plan = *run.outcome.plan;
  const Budgets& budget = run.request.budgets;
  std::vector<std::vector<std::string>> rows;
  for (const auto& [name, tier] : Names<Tier>::all) {
    if (plan.peak[tier] == 0) continue;
    std::vector<std::string> row = {
        std::string(name), rounded_size(budget[tier]), rounded_size(plan.peak[tier]),
        fmt::format("{:.0f} %", 100.0 * static_cast<double>(plan.peak[tier]) / static_cast<double>(budget[tier]))};
    for (const Bytes bytes : plan.at_rest[tier]) row.push_back(rounded_size(bytes));
    rows.push_back(std::move(row));
  }
  return table_data("Tiers in figures", "Of the peak, by category at its moment.", columns, rows);
}

}  // namespace

std::string plan_page(const PlannedRun& run, const PreparedModel& model, const RunOptions& options) {
  Json page = {{"title", fmt::format("Plan of {}", options.model.model)}};
  if (!run.outcome.plan) {
    page["subtitle"] = fmt::format("It does not fit: {}.", lacks(run.outcome));
    std::vector<std::vector<std::string>> rows;
    for (const FlagList& flags : run.would_fit.lists) rows.push_back({fmt::format("{}", fmt::join(flags, " "))});
    const std::string words = words_of(run.would_fit);  // heading of the flags, or the statement that there are none
    page["tables"] = {table_data("Would fit", words.substr(0, words.find('\n')), std::array<std::string_view, 1>{"flags"}, rows)};
    return html_page(page);
  }
  const PlanFigures figures = figures_of(run, model);
  page["subtitle"] = fmt::format("{} parameters on {}, {}", with_commas(model.of(*run.outcome.plan).graph.parameters),
                                 run.machine.name, counted(run.machine.threads, "thread"));
  page["tiles"] = tiles_of(figures);
  page["tiers"] = tiers_of(run);
  page["timeline"] = timeline_of(run, model.of(*run.outcome.plan).graph);
  std::vector<std::vector<std::string>> rows;
  for (auto& [name, value] : plan_facts(run, model, options)) rows.push_back({name, value});
  page["tables"] = {tiers_table(run), lanes_table(figures), table_data("More", "", {}, rows)};
  page["command"] = fmt::format("spillway train {}", fmt::join(plan_flags(run, model, options), " "));
  return html_page(page);
}

}  // namespace spillway
