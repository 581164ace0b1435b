#include "trainer/plan/plan_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "memory/error.h"
#include "memory/packing.h"
#include "memory/schedule.h"
#include "memory/waits.h"
#include "models/posix_file.h"
#include "models/strict_json.h"
#include "trainer/host/host.h"
#include "trainer/host/json_place.h"
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

constexpr Bytes kMostPlanBytes = Bytes{1} << 28;
constexpr int kMostPlanKeys = 1 << 27;

constexpr std::string_view form_name(StateForm form) {
  return form == StateForm::exact ? "exact" : form == StateForm::compact ? "compact" : "fp32";
}

template <typename T>
Json runs_of(const std::vector<T>& values) {  // [[value, count], ...]
  Json runs = Json::array();
  for (std::size_t i = 0; i < values.size();) {
    std::size_t end = i;
    while (end < values.size() && values[end] == values[i]) ++end;
    runs.push_back({static_cast<int>(values[i]), end - i});
    i = end;
  }
  return runs;
}

Json names_of(std::span<const Tier> tiers) {
  Json names = Json::array();
  for (const Tier tier : tiers) names.push_back(name_of(tier));
  return names;
}

// Of a device of its own: the tiers, and what follows from there being three.
void add_chain(Json& json, const Choices& choices) {
  if (!has_host(choices.chain)) return;
  json["tiers"] = names_of(tiers_of(choices.chain));
  json["update_on"] = name_of(choices.update_tier);
  json["spill"] = runs_of(choices.spill);
}

Json choices_json(const Choices& choices) {
  Json json = {{"graph", choices.graph == 0 ? "tiled" : "fused"},
               {"order", order_words(choices)},
               {"update", name_of(choices.update)},
               {"micro_batches", choices.micro_batches},
               {"group", choices.group},
               {"strip", choices.strip},
               {"clip", choices.clip},
               {"state", form_name(choices.form)},
               {"slots", choices.slots},
               {"durable_every", choices.durable_every},
               {"lookahead", choices.lookahead},
               {"update_spread", choices.update_spread},
               {"early_room", choices.early_room},
               {"fetches_rows", choices.fetches_rows},
               {"ranks", choices.sharding.ranks},
               {"zero_group_size", choices.sharding.group},
               {"zero_stage", choices.sharding.stage},
               {"update_chunk", choices.update_chunk},
               {"weight_tier", runs_of(choices.weight_tier)},
               {"optimizer_tier", runs_of(choices.optimizer_tier)},
               {"gradient_tier", runs_of(choices.gradient_tier)},
               {"deferred", runs_of(choices.deferred)},
               {"saved", runs_of(choices.saved)},
               {"boundary", runs_of(choices.boundary)}};
  add_chain(json, choices);
  return json;
}

Json tiers_json(const Plan& plan, const Budgets& budgets) {
  const std::array<Bytes, kTiers> budget = {budgets.device, budgets.host, budgets.nvme};
  Json tiers;
  for (int t = 0; t < kTiers; ++t) {
    Json at_rest;
    for (int c = 0; c < kCategories; ++c) at_rest[std::string(name_of(static_cast<Category>(c)))] = plan.at_rest[t][c];
    tiers[std::string(name_of(static_cast<Tier>(t)))] = {
        {"budget_bytes", budget[t]}, {"peak_bytes", plan.peak[t]}, {"at_rest", at_rest}};
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

// What of the tiers is used when, which is for those who draw it: no part of what a plan is made of.
Json resident_json(const StepUse& use) {
  Json tiers;
  for (int t = 0; t < kTiers; ++t) {
    Json bytes;
    for (int c = 0; c < kCategories; ++c) bytes[std::string(name_of(static_cast<Category>(c)))] = use.resident[t][c];
    tiers[std::string(name_of(static_cast<Tier>(t)))] = std::move(bytes);
  }
  return tiers;
}
// What a kill costs in either mode; null where all of the run is lost.
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

// Which rates of the drive the plan goes by, those of either source, and the whole profile as --profile takes it.
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

}  // namespace

std::string plan_json(const PlannedRun& run, const PreparedModel& model, const RunOptions& options) {
  const Budgets& budgets = run.request.budgets;
  Json json;
  json["fits"] = run.outcome.plan.has_value();
  const UnitGraph& graph = run.outcome.plan ? graph_of(model.graphs(), run.outcome.plan->choices) : model.tiled().graph;
  json["model"] = {{"name", options.model.model},
                   {"parameters", graph.parameters},
                   {"active_parameters", graph.active_parameters},
                   {"flops_per_token", flops_per_token(model)},
                   {"dtype", name_of(graph.dtype)},
                   {"tokens_per_step", graph.rows * run.request.micro_batches * run.request.sharding.ranks}};
  const PeerFigures peer = peer_figures_of(run, model, options);
  json["active_parameters"] = graph.active_parameters;
  json["as_others_store_it"] = {{"state_bytes", peer.state_bytes},
                                {"state_bytes_by_zero_stage", peer.state_bytes_of_stage},
                                {"activation_bytes_per_layer", peer.activation_bytes_per_layer}};
  json["process_overhead_bytes"] = kProcessOverhead;
  json["profile"] = run.machine.name;
  if (has_devices(run.measured)) json["note"] = "planned; not yet run by this version";
  json["machine"] = machine_json(run.measured);
  if (!run.outcome.plan) {
    json["short_tier"] = name_of(run.outcome.short_tier);
    json["needed_bytes"] = run.outcome.needed;
    json["budget_bytes"] = run.outcome.budget;
    json["lacking_bytes"] = run.outcome.needed - run.outcome.budget;
    json["would_fit"] = run.would_fit.lists;
    return json.dump(1) + "\n";
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
      {"bound", {{"name", bound_name(figures.bound, plan.choices)}, {"why", bound_words(figures.bound, plan.choices)}}},
      {"model_flops_utilization", figures.model_flops_utilization},
      {"tokens_until_compute_binds", figures.tokens_until_compute_binds ? Json(*figures.tokens_until_compute_binds) : Json()}};
  json["lifts"] = lifts_json(run.lifts);
  json["nvme_per_step"] = {{"read_bytes", figures.nvme_read_bytes}, {"written_bytes", figures.nvme_written_bytes}};
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

namespace {

std::string_view kind_of(Chain chain) { return has_host(chain) ? "with memory of its own" : "that shares the host's memory"; }

// A plan runs as it is compiled, whatever a file says of its operations; a file that says otherwise is not run at all.
void refuse_other_operations(const nlohmann::json& json, const std::string& file, const Plan& plan, const UnitGraph& graph) {
  const JsonPlace ops = JsonPlace(json, file, kPlanWasEdited).at("ops");
  const auto columns = nlohmann::ordered_json::parse(operations_text(plan, graph, nullptr));
  for (const auto& [key, made] : columns.items()) {
    if (key == "digest") continue;  // it says less than any of the others
    const JsonPlace column = ops.at(key);
    const nlohmann::json& found = json["ops"][key];
    if (!made.is_array() && found != made)
      column.refuse(fmt::format("is {}, but these choices make it {}", shown(found), made.dump()));
    if (!made.is_array()) continue;
    const std::size_t entries = column.size();
    for (std::size_t i = 0; i < std::min(entries, made.size()); ++i) {
      if (found[i] == nlohmann::json(made[i])) continue;
      column.at(i).refuse(fmt::format("is {}, but these choices make it {}", shown(found[i]), made[i].dump()));
    }
    if (entries != made.size()) column.refuse(fmt::format("has {} entries, but these choices make {}", entries, made.size()));
  }
  const JsonPlace digest = ops.at("digest");
  if (const std::string made = columns["digest"].get<std::string>(); digest.text() != made)
    digest.refuse(fmt::format("is {}, but that of these choices is {}: places of buffers, or what operations touch, differ",
                              shown(json["ops"]["digest"]), made));
}

}  // namespace

std::optional<MeasuredProfile> machine_of_plan(const std::string& file) {
  const nlohmann::json json = parse_strict_json(read_text_file(file, kMostPlanBytes), file, kMostPlanKeys);
  const JsonPlace place(json, file, kPlanWasEdited);
  if (!place.has("machine")) return std::nullopt;
  return profile_in(place.at("machine").at("profile"), json["machine"]["profile"]);
}

PlanOutcome outcome_from_file(const std::string& file, const GraphCandidates& graphs, const MachineProfile& machine,
                              const PlanRequest& request) {
  const nlohmann::json json = parse_strict_json(read_text_file(file, kMostPlanBytes), file, kMostPlanKeys);
  Choices choices = choices_of(json, file, graphs);
  const UnitGraph& graph = graph_of(graphs, choices);
  if (choices.sharding != request.sharding) {
    throw InputError(fmt::format("{}: the plan is for {} ranks, stage {} in groups of {}; the flags say {}, {}, {}", file,
                                 choices.sharding.ranks, choices.sharding.stage, choices.sharding.group, request.sharding.ranks,
                                 request.sharding.stage, request.sharding.group),
                     "Give the flags that the plan was made with.");
  }
  if (choices.chain != request.chain) {
    throw InputError(fmt::format("{}: the plan is for a device {}; the flags say one {}", file, kind_of(choices.chain),
                                 kind_of(request.chain)),
                     "Give the --device and the --profile that the plan was made with.");
  }
  if (choices.micro_batches != request.micro_batches || choices.clip != request.clip || choices.form != request.form) {
    throw InputError(fmt::format("{}: the plan is for {} micro-batches, state {}, clipping {}; the flags say {}, {}, {}", file,
                                 choices.micro_batches, form_name(choices.form), choices.clip ? "on" : "off",
                                 request.micro_batches, form_name(request.form), request.clip ? "on" : "off"),
                     "Give train the flags that the plan was made with.");
  }
  PlanOutcome outcome;
  choices.gives_logits = request.gives_logits;
  Plan plan = build_schedule(graph, choices);
  if (request.evaluates) plan.evaluate = build_evaluation(*graphs.tiled, plan);
  pack(plan);
  derive_waits(plan);
  for (int t = 0; t < kTiers; ++t) {
    const std::string tier(name_of(static_cast<Tier>(t)));
    const nlohmann::json::json_pointer place("/tiers/" + tier + "/peak_bytes");
    const nlohmann::json peak = json.contains(place) ? json.at(place) : nlohmann::json();
    if (!peak.is_number_integer() || peak.get<Bytes>() != plan.peak[t]) {
      throw InputError(fmt::format("{}: tiers.{}.peak_bytes is {}, but these choices give {} bytes for this model and batch",
                                   file, tier, peak.dump(), plan.peak[t]),
                       std::string(kPlanWasEdited));
    }
  }
  refuse_other_operations(json, file, plan, graph);
  const std::array<Bytes, kTiers> budget = {request.budgets.device, request.budgets.host, request.budgets.nvme};
  for (int t = 0; t < kTiers; ++t) {
    if (plan.peak[t] <= budget[t]) continue;
    outcome.short_tier = static_cast<Tier>(t);
    outcome.needed = plan.peak[t];
    outcome.budget = budget[t];
    return outcome;
  }
  outcome.prediction = predict(plan, graph, machine);
  outcome.plan = std::move(plan);
  return outcome;
}

}  // namespace spillway
