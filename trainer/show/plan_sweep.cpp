#include "trainer/show/plan_sweep.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "files/json_place.h"
#include "files/json_text.h"
#include "files/strict_json.h"
#include "memory/base/error.h"
#include "trainer/machine/probe.h"
#include "trainer/options/flag_table.h"
#include "trainer/options/resolve_options.h"
#include "trainer/options/validate_options.h"
#include "trainer/plan/plan_flags.h"
#include "trainer/show/page.h"
#include "trainer/show/plan_report.h"
#include "trainer/words/nearest_name.h"
#include "trainer/words/quantity.h"

namespace spillway {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<std::string_view, 4> kSwept = {"ranks", "device-memory", "seq-length", "global-batch-size"};
constexpr std::size_t kMostValues = 64;

[[noreturn]] void refuse(std::string_view found, std::string_view allowed, std::string help = {}) {
  throw InputError(fmt::format("--sweep: found {}, allowed: {}", found, allowed), std::move(help));
}

std::string value_of(const Flag& flag, const RunOptions& options) {
  const nlohmann::json value = flag.get(options);
  return plain_text(value);
}

// The options for each value, as if it had been typed in place of the original.
std::vector<RunOptions> options_of_values(const Sweep& sweep, const RawFlags& typed) {
  std::vector<RunOptions> all;
  std::set<std::string> seen;
  for (const std::string& value : sweep.values) {
    RawFlags flags = typed;
    flags.given[sweep.flag] = {value};
    all.push_back(resolve_options(flags).options);
    if (!seen.insert(value_of(*find_flag(sweep.flag), all.back())).second)
      refuse(fmt::format("{} twice in the values of {}", shown_name(value), sweep.flag), "each value once");
  }
  if (!all.front().memory.plan.empty())
    refuse("it together with --plan", "one of them", "A saved plan is for one value of each flag.");
  return all;
}

SweptPlan planned(const MeasuredProfile& machine, const RunOptions& options, const PreparedModel& model) {
  SweptPlan swept;
  try {
    PlannedRun run = plan_run_on(machine, options, model, Where::anywhere);
    if (run.outcome.plan) {
      swept.figures = figures_of(run, model);
      swept.disk = disk_figures_of(run, model, options, *swept.figures);
      swept.peak = run.outcome.plan->peak;
      return swept;
    }
    swept.lacks = lacks(run.outcome);
    swept.lacking = std::move(run.outcome);
  } catch (const BudgetError& error) {
    swept.lacks = error.what();
  }
  return swept;
}

}  // namespace

Sweep parse_sweep(const std::string& text) {
  const std::string allowed = fmt::format("FLAG=V,V,... with FLAG one of {}", fmt::join(kSwept, ", "));
  const std::size_t equals = text.find('=');
  Sweep sweep{text.substr(0, equals), {}};
  if (std::ranges::find(kSwept, sweep.flag) == kSwept.end()) {
    const std::vector<std::string> names(kSwept.begin(), kSwept.end());
    const std::string nearest = nearest_name(sweep.flag, names);
    const bool is_flag = find_flag(sweep.flag) != nullptr;
    refuse(fmt::format("{}{}", shown_name(sweep.flag), is_flag ? ", which is not swept" : ", which is no flag"), allowed,
           is_flag || nearest.empty() ? "" : fmt::format("did you mean {}?", nearest));
  }
  if (equals == text.npos || equals + 1 == text.size()) refuse(fmt::format("{} without values", sweep.flag), allowed);
  for (std::size_t begin = equals + 1; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    sweep.values.push_back(text.substr(begin, end - begin));
    if (sweep.values.back().empty()) refuse(fmt::format("an empty value of {}", sweep.flag), allowed);
    begin = end + 1;
  }
  if (sweep.values.size() > kMostValues)
    refuse(fmt::format("{} values of {}", sweep.values.size(), sweep.flag), fmt::format("at most {}", kMostValues));
  return sweep;
}

PlanSweep plan_sweep(const Sweep& sweep, const RawFlags& typed, const LogSink& say) {
  const std::vector<RunOptions> all = options_of_values(sweep, typed);
  PlanSweep swept{.sweep = sweep, .options = all.front(), .machine = {}, .parameters = 0, .plans = {}};
  require_model(swept.options);
  std::optional<MeasuredProfile> machine;  // one profile for all, although nothing keeps a measured one
  for (const RunOptions& options : all) {
    const PreparedModel model(options, Where::anywhere);
    if (!machine) {
      for (const RunOptions& later : all) (void)seq_length_for(later, model.model().config.max_positions);
      machine = profile_for(options, model.pool(), say);
      swept.machine = fmt::format("{}, {} threads", shown_name(machine->name), machine->threads);
      swept.parameters = model.tiled().graph.parameters;
    }
    swept.plans.push_back(planned(*machine, options, model));
    swept.plans.back().value = value_of(*find_flag(sweep.flag), options);
  }
  return swept;
}

void require_any_fit(const PlanSweep& sweep) {
  if (std::ranges::any_of(sweep.plans, [](const SweptPlan& plan) { return plan.figures.has_value(); })) return;
  throw BudgetError(fmt::format("--sweep: none of the {} values of {} fits", sweep.plans.size(), sweep.sweep.flag),
                    "`spillway plan` with one of them says what would.");
}

namespace {

// The tiers that at least one of the plans uses.
std::vector<Tier> tiers_of(const PlanSweep& sweep) {
  std::vector<Tier> tiers;
  for (const Tier tier : kAll<Tier>) {
    if (std::ranges::any_of(sweep.plans, [&](const SweptPlan& plan) { return plan.peak[tier] > 0; })) tiers.push_back(tier);
  }
  return tiers;
}

std::string wear_of(const PlanSweep& sweep, const SweptPlan& plan) {
  const auto& rated = sweep.options.log.nvme_tbw;
  if (!rated) return rounded_terabytes(terabytes_in_1000_steps(plan.disk.written_bytes));
  const double steps = steps_of_rating(plan.disk, *rated, sweep.options.memory.nvme.size());
  return std::isfinite(steps) ? rounded_count(steps) : "for ever";
}

std::vector<std::string> columns_of(const PlanSweep& sweep) {
  std::vector<std::string> columns = {sweep.sweep.flag, "step", "tokens/s", "bound", "by"};
  for (const Tier tier : tiers_of(sweep)) columns.emplace_back(name_of(tier));
  columns.emplace_back("nvme/step");
  columns.emplace_back(sweep.options.log.nvme_tbw ? "drive, steps" : "wear/1000");
  return columns;
}

// The cells of a plan that fits; only the value if it does not fit.
std::vector<std::string> cells_of(const PlanSweep& sweep, const SweptPlan& plan) {
  if (!plan.figures) return {plan.value};
  const PlanFigures& figures = *plan.figures;
  std::vector<std::string> cells = {plan.value, rounded_seconds(figures.step_s), with_commas(std::llround(figures.tokens_per_s)),
                                    rounded_seconds(figures.bound.seconds), std::string(name_of(figures.bound.lane()))};
  for (const Tier tier : tiers_of(sweep)) cells.push_back(rounded_size(plan.peak[tier]));
  cells.push_back(rounded_size(figures.nvme_read_bytes + figures.nvme_written_bytes));
  cells.push_back(wear_of(sweep, plan));
  return cells;
}

std::string does_not_fit(const SweptPlan& plan) { return "does not fit: " + plan.lacks; }

constexpr int kColumns = 100;

std::string table_lines(const PlanSweep& sweep) {
  const std::vector<std::string> columns = columns_of(sweep);
  std::vector<std::vector<std::string>> rows = {columns};
  for (const SweptPlan& plan : sweep.plans) rows.push_back(cells_of(sweep, plan));
  std::vector<std::size_t> widths(columns.size(), 0);
  for (const auto& row : rows) {
    for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  }
  std::string lines;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    std::string line = fmt::format("{:<{}}", rows[r][0], widths[0]);
    for (std::size_t c = 1; c < rows[r].size(); ++c)
      line += c == 4 ? fmt::format("  {:<{}}", rows[r][c], widths[c]) : fmt::format("  {:>{}}", rows[r][c], widths[c]);
    if (r > 0 && !sweep.plans[r - 1].figures) {
      const int indent = static_cast<int>(widths[0]) + 2;
      line += "  " + wrapped(does_not_fit(sweep.plans[r - 1]), indent, kColumns);
    }
    lines += line + "\n";
  }
  return lines;
}

// Bars of '#', the longest filling the line; '|' marks the end of a bar at the bound of the plan's work.
std::string picture_lines(const PlanSweep& sweep) {
  std::size_t values = 0, figures = 0;
  double most = 0;
  for (const SweptPlan& plan : sweep.plans) {
    values = std::max(values, plan.value.size());
    if (!plan.figures) continue;
    figures = std::max(figures, with_commas(std::llround(plan.figures->tokens_per_s)).size());
    most = std::max(most, plan.figures->tokens_per_step / plan.figures->bound.seconds);
  }
  const double room = kColumns - static_cast<double>(values + figures) - 5;
  const auto length = [&](double tokens_per_s) { return static_cast<std::size_t>(std::lround(room * tokens_per_s / most)); };
  std::string lines = "tokens/s, and | where the bound is\n";
  for (const SweptPlan& plan : sweep.plans) {
    if (!plan.figures) {
      lines += fmt::format("{:<{}}  {:>{}}\n", plan.value, values, "-", figures);
      continue;
    }
    std::string bar(length(plan.figures->tokens_per_s), '#');
    bar.resize(std::max(bar.size(), length(plan.figures->tokens_per_step / plan.figures->bound.seconds)), ' ');
    lines += fmt::format("{:<{}}  {:>{}}  {}|\n", plan.value, values, with_commas(std::llround(plan.figures->tokens_per_s)),
                         figures, bar);
  }
  return lines;
}

std::string subject_of(const PlanSweep& sweep) {
  const bool has_ranks = sweep.sweep.flag == "ranks" || sweep.options.parallel.ranks > 1;
  return fmt::format("{}: {} parameters on {}{}", shell_word(sweep.options.model.model), with_commas(sweep.parameters),
                     sweep.machine, has_ranks ? "; tiers and nvme/step are those of one rank" : "");
}

Json row_json(const PlanSweep& sweep, const SweptPlan& plan) {
  const nlohmann::json as_number = parsed_json(plan.value);
  Json row = {{"flag", sweep.sweep.flag},
              {"value", as_number.is_number() ? Json(as_number) : Json(plan.value)},
              {"fits", plan.figures.has_value()}};
  if (!plan.figures) {
    row["lacks"] = plan.lacks;
    if (plan.lacking.needed > 0) {
      row["short_tier"] = name_of(plan.lacking.short_tier);
      row["needed_bytes"] = plan.lacking.needed;
      row["budget_bytes"] = plan.lacking.budget;
      row["lacking_bytes"] = plan.lacking.needed - plan.lacking.budget;
    }
    return row;
  }
  const PlanFigures& figures = *plan.figures;
  row["step_s"] = figures.step_s;
  row["tokens_per_s"] = figures.tokens_per_s;
  row["bound_s"] = figures.bound.seconds;
  row["binding_lane"] = name_of(figures.bound.lane());
  for (const auto& [name, tier] : Names<Tier>::all) row["peak_bytes"][std::string(name)] = plan.peak[tier];
  row["nvme_per_step"] = {{"read_bytes", figures.nvme_read_bytes}, {"written_bytes", figures.nvme_written_bytes}};
  row["nvme_written_tb_per_1000_steps"] = terabytes_in_1000_steps(plan.disk.written_bytes);
  if (const auto& rated = sweep.options.log.nvme_tbw; rated && plan.disk.written_bytes > 0)
    row["nvme_rating_steps"] = steps_of_rating(plan.disk, *rated, sweep.options.memory.nvme.size());
  return row;
}

std::string sweep_json(const PlanSweep& sweep) {
  Json rows = Json::array();
  for (const SweptPlan& plan : sweep.plans) rows.push_back(row_json(sweep, plan));
  return json_text(rows);
}

// One bar for each plan: its length, the mark of its bound, and its text.
Json bars_of(const PlanSweep& sweep) {
  Json bars = Json::array();
  for (const SweptPlan& plan : sweep.plans) {
    if (!plan.figures) {
      bars.push_back({{"name", plan.value}, {"value", nullptr}, {"text", does_not_fit(plan)}});
      continue;
    }
    bars.push_back({{"name", plan.value},
                    {"value", plan.figures->tokens_per_s},
                    {"mark", plan.figures->tokens_per_step / plan.figures->bound.seconds},
                    {"text", with_commas(std::llround(plan.figures->tokens_per_s))}});
  }
  return {{"title", fmt::format("Tokens a second by --{}", sweep.sweep.flag)},
          {"note", "As planned. The line at each bar is what the bound of its work allows."},
          {"list", bars}};
}

std::string sweep_page(const PlanSweep& sweep) {
  std::vector<std::string> names = columns_of(sweep);
  for (std::size_t c = 1; c < names.size(); ++c) names[c] += c == 4 ? "" : "#";
  const std::vector<std::string_view> columns(names.begin(), names.end());
  std::vector<std::vector<std::string>> rows;
  for (const SweptPlan& plan : sweep.plans) {
    rows.push_back(cells_of(sweep, plan));
    rows.back().resize(columns.size());
    if (!plan.figures) rows.back()[4] = does_not_fit(plan);
  }
  const Json page = {
      {"title", fmt::format("What --{} costs {}", sweep.sweep.flag, sweep.options.model.model)},
      {"subtitle", subject_of(sweep)},
      {"bars", bars_of(sweep)},
      {"tables",
       Json::array({table_data("In figures", "Peaks of the tiers, and what is read and written a step.", columns, rows)})}};
  return html_page(page);
}

}  // namespace

std::string sweep_text(const PlanSweep& sweep, OutputFormat format) {
  switch (format) {
    case OutputFormat::json: return sweep_json(sweep);
    case OutputFormat::html: return sweep_page(sweep);
    case OutputFormat::table: break;
  }
  return fmt::format("{}\n\n{}\n{}", wrapped(subject_of(sweep), 0, kColumns), table_lines(sweep), picture_lines(sweep));
}

}  // namespace spillway
