#include "trainer/show/run_report.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>

#include "trainer/plan/tier_picture.h"
#include "trainer/show/page.h"
#include "trainer/show/run_analysis.h"
#include "trainer/words/quantity.h"

namespace spillway {
namespace {

using Json = nlohmann::ordered_json;
using Rows = std::vector<std::vector<std::string>>;

constexpr std::size_t kShownOperations = 10;
constexpr std::size_t kMostPoints = 2000;  // most points of a curve: more than a screen has columns

// A curve over the steps; in a long run each point is the mean of several steps.
Json curve(const RunRecord& run, std::string_view title, std::string_view note,
           const std::function<double(const StepRecord&)>& figure) {
  const std::size_t group = (run.log.size() + kMostPoints - 1) / kMostPoints;
  Json x = Json::array(), y = Json::array();
  for (std::size_t i = 0; i < run.log.size(); i += group) {
    const std::size_t end = std::min(run.log.size(), i + group);
    double sum = 0;
    for (std::size_t k = i; k < end; ++k) sum += figure(run.log[k]);
    x.push_back(run.log[i].step);
    y.push_back(sum / static_cast<double>(end - i));  // a value that is not finite becomes null
  }
  const std::string means = group > 1 ? fmt::format("{}Each point is the mean of {} steps.", note.empty() ? "" : " ", group) : "";
  return {{"title", title}, {"note", fmt::format("{}{}", note, means)}, {"x", x}, {"y", y}};
}

// How far the experts' load was from the even one that the plan counts with.
void add_mixture(const RunRecord& run, Json& curves) {
  const auto add = [&](std::string_view title, std::string_view note, std::optional<double> StepRecord::* figure) {
    if (!(run.log.front().*figure)) return;
    curves.push_back(curve(run, title, note, [figure](const StepRecord& record) { return (record.*figure).value_or(0); }));
  };
  add("Balance loss of the routers", "Before its coefficient.", &StepRecord::aux_loss);
  add("Fullest expert", "Its rows over the mean of all experts of the layer; the plan counts with 1.",
      &StepRecord::expert_load_most);
  add("Emptiest expert", "Its rows over the mean.", &StepRecord::expert_load_least);
  add("Entropy of the experts' load", "Over that of an even load.", &StepRecord::expert_entropy);
}

Json curves_of(const RunRecord& run) {
  Json curves = Json::array();
  curves.push_back(curve(run, "Loss", "", [](const StepRecord& record) { return record.loss; }));
  Json throughput =
      curve(run, "Tokens a second", "The dashes are the plan.", [](const StepRecord& record) { return record.tokens_per_s; });
  throughput["planned"] = run.tokens_per_step / run.planned_step_s;
  throughput["from_zero"] = true;
  curves.push_back(std::move(throughput));
  curves.push_back(curve(run, "Gradient norm", "Before clipping.", [](const StepRecord& record) { return record.grad_norm; }));
  if (!run.log.empty() && run.log.front().expert_load_most) add_mixture(run, curves);
  Json evaluated = {{"title", "Evaluation loss"}, {"x", Json::array()}, {"y", Json::array()}};
  for (const StepRecord& record : run.log) {
    if (record.eval_loss_before) {
      evaluated["x"].push_back(record.step - 1);
      evaluated["y"].push_back(*record.eval_loss_before);
    }
    if (!record.eval_loss) continue;
    evaluated["x"].push_back(record.step);
    evaluated["y"].push_back(*record.eval_loss);
  }
  if (!evaluated["x"].empty()) curves.push_back(std::move(evaluated));
  if (run.planned_read_bytes + run.planned_written_bytes > 0) {
    Json rate =
        curve(run, "NVMe, MiB a second", "Read and written together. The dashes are the plan.", [](const StepRecord& record) {
          return static_cast<double>(record.nvme_read_bytes + record.nvme_written_bytes) / static_cast<double>(kMiB) /
                 record.step_s;
        });
    rate["planned"] =
        static_cast<double>(run.planned_read_bytes + run.planned_written_bytes) / static_cast<double>(kMiB) / run.planned_step_s;
    rate["from_zero"] = true;
    curves.push_back(std::move(rate));
  }
  return curves;
}

std::string name_of_operation(const RunRecord& run, int id) {
  const RecordedOperation& operation = run.operations[static_cast<std::size_t>(id)];
  return fmt::format("{} {}{}{}", operation.id, operation.kind, operation.of.empty() ? "" : " " + operation.of,
                     operation.micro_batch >= 0 ? fmt::format(", micro-batch {}", operation.micro_batch) : "");
}

Json costs_table(const RunRecord& run) {
  constexpr std::array<std::string_view, 5> columns = {"operation", "lane", "planned#", "recorded#", "beyond plan#"};
  Rows rows;
  for (const OperationCost& cost : costliest(run, kShownOperations)) {
    if (cost.excess_s() <= 0) break;
    rows.push_back({name_of_operation(run, cost.id), std::string(name_of(run.operations[static_cast<std::size_t>(cost.id)].lane)),
                    rounded_seconds(cost.planned_s), rounded_seconds(cost.recorded_s), "+" + rounded_seconds(cost.excess_s())});
  }
  return table_data("Operations that cost most against plan",
                    "Time of the operation's lane; of requests that overlap, from the end of the one before.", columns, rows);
}

Json stalls_table(const RunRecord& run) {
  constexpr std::array<std::string_view, 4> columns = {"compute stood still before", "from#", "for#", "waiting for"};
  Rows rows;
  for (const Stall& stall : longest_stalls(run, kShownOperations)) {
    rows.push_back({name_of_operation(run, stall.id), rounded_seconds(stall.begin_s), rounded_seconds(stall.seconds),
                    stall.waited_for < 0 ? "the step before, or its own start" : name_of_operation(run, stall.waited_for)});
  }
  return table_data("Longest stalls",
                    fmt::format("Compute stood still for {} of the step in all.", rounded_seconds(stalled_s(run))), columns,
                    rows);
}

std::string rate_of(Bytes bytes, double seconds) {
  return bytes > 0 && seconds > 0 ? rounded_size(static_cast<Bytes>(static_cast<double>(bytes) / seconds)) + "/s" : "";
}

Json lanes_table(const RunRecord& run) {
  constexpr std::array<std::string_view, 6> columns = {"lane",   "busy, planned#", "busy, recorded#",
                                                       "moved#", "rate, planned#", "rate, recorded#"};
  Rows rows;
  for (const auto& [name, lane] : Names<Lane>::all) {
    const LaneUse use = use_of_lane(run, lane);
    if (use.planned_s == 0 && use.recorded_s == 0) continue;
    rows.push_back({std::string(name), rounded_seconds(use.planned_s), rounded_seconds(use.recorded_s),
                    use.bytes > 0 ? rounded_size(use.bytes) : "", rate_of(use.bytes, use.planned_s),
                    rate_of(use.bytes, use.recorded_s)});
  }
  return table_data("Lanes in figures", fmt::format("Of step {}, the last before the state was saved.", *run.timed_step), columns,
                    rows);
}

// The highest peak of a tier in the log; 0 if the log does not record the tier.
Bytes recorded_peak(const RunRecord& run, Tier tier) {
  Bytes most = 0;
  for (const StepRecord& record : run.log) most = std::max(most, record.peak_bytes[tier]);
  return most;
}

Json tiers_table(const RunRecord& run) {
  constexpr std::array<std::string_view, 4> columns = {"tier", "budget#", "peak, planned#", "peak, recorded#"};
  Rows rows;
  for (const auto& [name, tier] : Names<Tier>::all) {
    if (run.planned_peak[tier] == 0) continue;
    const Bytes recorded = recorded_peak(run, tier);
    rows.push_back({std::string(name), rounded_size(run.budget[tier]),
                    fmt::format("{} bytes", with_commas(run.planned_peak[tier])),
                    recorded > 0 ? fmt::format("{} bytes", with_commas(recorded)) : "(not in the log)"});
  }
  return table_data("Tiers in figures", "", columns, rows);
}

Json timeline_of(const RunRecord& run) {
  std::vector<ShownOperation> operations;
  for (const RecordedOperation& operation : run.operations) {
    operations.push_back({.kind = operation.kind,
                          .lane = name_of(operation.lane),
                          .of = operation.of,
                          .micro_batch = operation.micro_batch,
                          .bytes = operation.bytes,
                          .planned = operation.planned,
                          .recorded = run.timed_step ? std::optional(operation.recorded) : std::nullopt});
  }
  const std::string note =
      run.timed_step ? fmt::format("Step {} as it ran, below the plan of every step: the same operations. ", *run.timed_step)
                     : "The plan alone: the run has not saved a timeline yet (it does with its first checkpoint). ";
  const std::array marks = {TimelineMark{run.planned_step_s, "planned step"}};
  return timeline_data(operations, marks,
                       note + "Point at an operation; drag to move; turn the wheel with Ctrl or Shift to look closer." +
                           words_of_turns(run.turns));
}

// The planned picture above the recorded one, on one scale of time: the shorter one ends early.
Json tier_pictures_of(const RunRecord& run) {
  constexpr int columns = 1200;  // about one for each pixel
  std::vector<Span> planned, recorded;
  for (const RecordedOperation& operation : run.operations) {
    planned.push_back(operation.planned);
    recorded.push_back(operation.recorded);
  }
  const auto timed =
      std::ranges::find_if(run.log, [&](const StepRecord& record) { return run.timed_step && record.step == *run.timed_step; });
  const double recorded_s = timed != run.log.end() ? timed->step_s : 0;
  const double shown_s = std::max(run.planned_step_s, recorded_s);
  Json list = Json::array(), categories = Json::array();
  for (const auto& [name, _] : Names<Category>::all) categories.push_back(name);
  const auto add = [&](Tier tier, const std::string& what, const std::vector<Span>& spans, double step_s, Bytes most) {
    const int filled = std::clamp(static_cast<int>(std::lround(columns * step_s / shown_s)), 1, columns);
    TierPicture picture = tier_picture(*run.use, spans, step_s, tier, filled, most);
    for (std::vector<Bytes>& bytes : picture) bytes.resize(columns, 0);
    list.push_back({{"name", fmt::format("{}, {}", name_of(tier), what)},
                    {"budget_bytes", run.budget[tier]},
                    {"peak_bytes", run.planned_peak[tier]},
                    {"columns", picture}});
  };
  for (const Tier tier : kAll<Tier>) {
    const Bytes peak = run.planned_peak[tier];
    if (peak == 0) continue;
    add(tier, "planned", planned, run.planned_step_s, std::numeric_limits<Bytes>::max());
    if (recorded_s > 0) add(tier, fmt::format("recorded in step {}", *run.timed_step), recorded, recorded_s, peak);
  }
  return {{"note",
           "Bytes in use by the plan's buffers while steps follow one another, as operations were planned and as they ran, on "
           "one scale of time."},
          {"step_ns", shown_s * 1e9},
          {"categories", categories},
          {"list", list}};
}

struct Fact {
  std::string name, value;
};

std::vector<Fact> facts_of(const RunRecord& run) {
  const double step_s = median_of_steps(run, &StepRecord::step_s);
  return {{"loss, first and last step", fmt::format("{:.3f}, {:.3f}", run.log.front().loss, run.log.back().loss)},
          {"a step, recorded (median)", rounded_seconds(step_s)},
          {"a step, planned", rounded_seconds(run.planned_step_s)},
          {"against plan", fmt::format("{:+.0f} %", 100 * (step_s / run.planned_step_s - 1))},
          {"tokens a second", with_commas(std::llround(median_of_steps(run, &StepRecord::tokens_per_s)))},
          {fmt::format("of the bound, by {}", name_of(run.binding_lane)), fmt::format("{:.2f} x", step_s / run.bound_s)}};
}

}  // namespace

std::string report_page(const RunRecord& run) {
  Json page = {{"title", fmt::format("Run {}", run.directory)}};
  page["subtitle"] = fmt::format("{}: {} parameters; steps {} to {}", run.options.model.model, with_commas(run.parameters),
                                 run.log.front().step, run.log.back().step);
  page["tiles"] = Json::array();
  for (const Fact& fact : facts_of(run)) page["tiles"].push_back(Json::array({fact.name, fact.value}));
  page["curves"] = curves_of(run);
  if (run.use) page["tiers"] = tier_pictures_of(run);
  page["timeline"] = timeline_of(run);
  page["tables"] = Json::array();
  if (run.timed_step) {
    page["tables"].push_back(lanes_table(run));
    page["tables"].push_back(costs_table(run));
    page["tables"].push_back(stalls_table(run));
  }
  page["tables"].push_back(tiers_table(run));
  return html_page(page);
}

std::string report_summary(const RunRecord& run) {
  std::string text;
  for (const Fact& fact : facts_of(run)) text += fmt::format("{:<28}{}\n", fact.name, fact.value);
  if (!run.timed_step) return text;
  for (const OperationCost& cost : costliest(run, 3)) {
    if (cost.excess_s() > 0)
      text += fmt::format("{:<28}{} on {}: {}, planned {}\n", "cost more than planned", name_of_operation(run, cost.id),
                          name_of(run.operations[static_cast<std::size_t>(cost.id)].lane), rounded_seconds(cost.recorded_s),
                          rounded_seconds(cost.planned_s));
  }
  return text;
}

}  // namespace spillway
