#include "trainer/plan/plan_file.h"
#include "trainer/plan/network_figures.h"

#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "files/json_text.h"
#include "memory/passes/schedule.h"
#include "trainer/host/host.h"
#include "trainer/machine/profile_file.h"
#include "trainer/plan/bound_words.h"
#include "trainer/plan/disk_figures.h"
#include "trainer/plan/plan_choices.h"
#include "trainer/plan/plan_columns.h"
#include "trainer/plan/plan_figures.h"
#include "trainer/plan/plan_flags.h"
#include "trainer/plan/tier_picture.h"

namespace spillway {
namespace {

using Json = nlohmann::ordered_json;

Json categories_json(const By<Category, Bytes>& bytes) {
  Json json;
  for (const auto& [name, category] : Names<Category>::all) json[std::string(name)] = bytes[category];
  return json;
}

Json tiers_json(const Plan& plan, const Budgets& budgets) {
  Json tiers;
  for (const auto& [name, tier] : Names<Tier>::all) {
    tiers[std::string(name)] = {
        {"budget_bytes", budgets[tier]}, {"peak_bytes", plan.peak[tier]}, {"at_rest", categories_json(plan.at_rest[tier])}};
  }
  return tiers;
}

Json lanes_json(const PlanFigures& figures) {
  Json lanes = Json::array();
  for (const LaneFigures& lane : figures.lanes) {
    lanes.push_back({{"name", name_of(lane.lane)},
                     {"work", lane.work},
                     {"unit", lane.unit()},
                     {"rate", lane.rate()},
                     {"busy_s", lane.busy_s},
                     {"share", lane.share}});
  }
  return lanes;
}

// The resident bytes of each tier, for drawing; the plan is made without them.
Json resident_json(const StepUse& use) {
  Json tiers;
  for (const auto& [name, tier] : Names<Tier>::all) tiers[std::string(name)] = categories_json(use.resident[tier]);
  return tiers;
}
// The loss of a kill in either mode; null if the whole run is lost.
Json durability_json(const PlannedRun& run, const RunOptions& options) {
  const std::optional<std::int64_t> without = steps_lost_without(options);
  const double step_s = run.outcome.prediction.step_s;
  const auto cost = [&](std::optional<std::int64_t> steps) {
    return Json{{"kill_loses_steps", steps ? Json(*steps) : Json()},
                {"kill_loses_s", steps ? Json(static_cast<double>(*steps) * step_s) : Json()}};
  };
  Json json = {{"mode", run.durability ? "step" : "checkpoint"}, {"checkpoint", cost(without)}};
  if (!run.durability) return json;
  const DurableLayout& layout = run.durability->layout;
  json["step"] = cost(run.durability->interval);
  json["interval"] = run.durability->interval;
  json["store_bytes"] = layout.store_bytes;
  json["record_bytes"] = layout.place_bytes;
  json["copied_bytes"] = layout.copied_bytes;
  json["copy_s"] = run.durability->copy_s;
  json["written_bytes_per_step"] = run.durability->bytes_per_step();
  return json;
}

Json disk_json(const DiskFigures& disk) {
  return {{"nvme_bytes", disk.nvme_bytes}, {"checkpoint_bytes", disk.checkpoint_bytes}, {"checkpoints", disk.checkpoints}};
}

Json wear_json(const DiskFigures& disk) {
  return {{"nvme_written_bytes_per_step", disk.written_bytes},
          {"nvme_written_tb_per_1000_steps", terabytes_in_1000_steps(disk.written_bytes)},
          {"checkpoint_written_tb_per_1000_steps", terabytes_in_1000_steps(disk.checkpointed_bytes)}};
}

// The source of the drive rates that the plan uses, the rates of both sources, and the whole profile in the form that --profile
// takes.
Json machine_json(const MeasuredProfile& measured) {
  Json json;
  if (measured.nvme_read_bytes > 0) {
    json["drive_rates"] = measured.seen ? "seen" : "probed";
    const std::string& at = measured.seen ? measured.seen->at : measured.probed_at;
    json["at"] = at.empty() ? Json() : Json(at);
    Json probed;
    for (const DriveRateName& figure : kDriveRates) probed[std::string(figure.name)] = measured.*figure.of_machine;
    json["probed"] = std::move(probed);
    if (measured.seen) json["seen"] = to_json(*measured.seen);
  }
  json["profile"] = to_json(measured);
  return json;
}

Json lifts_json(const std::vector<Lift>& lifts) {
  Json list = Json::array();
  for (const Lift& lift : lifts)
    list.push_back({{"flags", lift.flags}, {"costs", lift.costs}, {"step_s", lift.step_s}, {"bound_s", lift.bound_s}});
  return list;
}

Json network_json(const NetworkFigures& network) {
  return {
      {"sent_bytes", network.all()}, {"gradients", network.sums}, {"weights", network.gathers}, {"control_words", network.words}};
}

Json model_json(const PlannedRun& run, const PreparedModel& model, const UnitGraph& graph, const std::string& name) {
  return {{"name", name},
          {"parameters", graph.parameters},
          {"active_parameters", graph.active_parameters},
          {"trained_parameters", graph.trained_parameters},
          {"flops_per_token", flops_per_token(model)},
          {"dtype", name_of(graph.dtype)},
          {"tokens_per_step", graph.rows * run.request.micro_batches * run.request.sharding.ranks}};
}

}  // namespace

std::string plan_json(const PlannedRun& run, const PreparedModel& model, const RunOptions& options) {
  const Budgets& budgets = run.request.budgets;
  Json json;
  json["fits"] = run.outcome.plan.has_value();
  const UnitGraph& graph = run.outcome.plan ? graph_of(model.graphs(), run.outcome.plan->choices) : model.tiled().graph;
  json["model"] = model_json(run, model, graph, options.model.model);
  const PeerFigures peer = peer_figures_of(run, model, options);
  json["active_parameters"] = graph.active_parameters;
  json["as_others_store_it"] = {{"state_bytes", peer.state_bytes},
                                {"state_bytes_by_zero_stage", peer.state_bytes_of_stage},
                                {"activation_bytes_per_layer", peer.activation_bytes_per_layer}};
  json["process_overhead_bytes"] = kProcessOverhead;
  json["profile"] = run.machine.name;
  json["machine"] = machine_json(run.measured);
  if (!run.outcome.plan) {
    json["short_tier"] = name_of(run.outcome.short_tier);
    json["needed_bytes"] = run.outcome.needed;
    json["budget_bytes"] = run.outcome.budget;
    json["lacking_bytes"] = run.outcome.needed - run.outcome.budget;
    json["would_fit"] = run.would_fit.lists;
    return json_text(json);
  }
  const Plan& plan = *run.outcome.plan;
  const Prediction& prediction = run.outcome.prediction;
  json["tiers"] = tiers_json(plan, budgets);
  const PlanFigures figures = figures_of(run, model);
  json["lanes"] = lanes_json(figures);
  json["predicted"] = {
      {"step_s", figures.step_s},
      {"tokens_per_s", figures.tokens_per_s},
      {"bound_s", figures.bound.seconds},
      {"binding_lane", name_of(figures.bound.lane())},
      {"bound", {{"name", bound_name(figures.bound)}, {"why", bound_words(figures.bound, plan.choices)}}},
      {"model_flops_utilization", figures.model_flops_utilization},
      {"tokens_until_compute_binds", figures.tokens_until_compute_binds ? Json(*figures.tokens_until_compute_binds) : Json()}};
  json["lifts"] = lifts_json(run.lifts);
  json["nvme_per_step"] = {{"read_bytes", figures.nvme_read_bytes}, {"written_bytes", figures.nvme_written_bytes}};
  if (plan.choices.sharding.ranks > 1) json["network_per_step"] = network_json(network_figures(plan, model.of(plan).graph));
  const DiskFigures disk = disk_figures_of(run, model, options, figures);
  json["disk"] = disk_json(disk);
  json["wear"] = wear_json(disk);
  if (options.log.nvme_tbw && disk.written_bytes > 0) {
    json["nvme_rating"] = {{"bytes_per_drive", *options.log.nvme_tbw},
                           {"steps", steps_of_rating(disk, *options.log.nvme_tbw, options.memory.nvme.size())}};
  }
  json["durability"] = durability_json(run, options);
  json["flags"] = fmt::format("{}", fmt::join(plan_flags(run, model, options), " "));
  json["choices"] = choices_json(plan.choices);
  const StepUse use = step_use(plan);
  json["resident"] = resident_json(use);
  std::string text = json.dump(1);
  text.resize(text.size() - 2);  // "\n}"
  return text +
         fmt::format(",\n \"ops\": {},\n \"buffers\": {}\n}}\n", operations_text(plan, graph, &prediction), buffers_text(use));
}

}  // namespace spillway
