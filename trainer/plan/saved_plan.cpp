#include "trainer/plan/saved_plan.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "files/json_place.h"
#include "files/posix_file.h"
#include "files/strict_json.h"
#include "memory/base/error.h"
#include "memory/passes/packing.h"
#include "memory/passes/schedule.h"
#include "memory/passes/waits.h"
#include "trainer/machine/profile_file.h"
#include "trainer/plan/plan_choices.h"
#include "trainer/plan/plan_columns.h"

namespace spillway {
namespace {

constexpr Bytes kMostPlanBytes = Bytes{1} << 28;
constexpr int kMostPlanKeys = 1 << 27;

std::string tiers_in_words(Chain chain) {
  std::string words;
  for (const Tier tier : tiers_of(chain)) words += fmt::format("{}{}", words.empty() ? "" : ", ", name_of(tier));
  return words;
}

// A plan runs as it is compiled, whatever the file says about its operations; a file with other operations is not run at all.
void refuse_other_operations(const nlohmann::json& json, const std::string& file, const Plan& plan, const UnitGraph& graph) {
  const JsonPlace ops = JsonPlace(json, file, kPlanWasEdited).at("ops");
  const auto columns = nlohmann::ordered_json::parse(operations_text(plan, graph, nullptr));
  for (const auto& [key, made] : columns.items()) {
    if (key == "digest") continue;  // every other column tells more
    const JsonPlace column = ops.at(key);
    const nlohmann::json& found = column.json();
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
                              shown(digest.json()), made));
}

}  // namespace

std::optional<MeasuredProfile> machine_of_plan(const std::string& file) {
  const nlohmann::json json = parse_strict_json(read_text_file(file, kMostPlanBytes), file, kMostPlanKeys);
  const JsonPlace place(json, file, kPlanWasEdited);
  if (!place.has("machine")) return std::nullopt;
  return profile_in(place.at("machine").at("profile"));
}

PlanOutcome outcome_from_file(const std::string& file, const GraphCandidates& graphs, const MachineProfile& machine,
                              const PlanRequest& request) {
  const nlohmann::json json = parse_strict_json(read_text_file(file, kMostPlanBytes), file, kMostPlanKeys);
  Choices choices = choices_of(json, file, graphs);
  const UnitGraph& graph = graph_of(graphs, choices);
  Sharding asked = request.sharding;
  if (request.any_stage) asked.stage = choices.sharding.stage;
  if (choices.sharding != asked) {
    throw InputError(fmt::format("{}: the plan is for {} ranks, stage {} in groups of {}; the flags say {}, {}, {}", file,
                                 choices.sharding.ranks, choices.sharding.stage, choices.sharding.group, request.sharding.ranks,
                                 request.sharding.stage, request.sharding.group),
                     "Give the flags that the plan was made with.");
  }
  if (choices.chain != request.chain) {
    throw InputError(fmt::format("{}: the plan is for a machine with the tiers {}; the flags say one with {}", file,
                                 tiers_in_words(choices.chain), tiers_in_words(request.chain)),
                     "Give the --device and the --profile that the plan was made with.");
  }
  if (choices.micro_batches != request.micro_batches || choices.clip != request.clip || choices.form != request.form) {
    throw InputError(fmt::format("{}: the plan is for {} micro-batches, state {}, clipping {}; the flags say {}, {}, {}", file,
                                 choices.micro_batches, name_of(choices.form), choices.clip ? "on" : "off", request.micro_batches,
                                 name_of(request.form), request.clip ? "on" : "off"),
                     "Give train the flags that the plan was made with.");
  }
  if (may_overflow(choices.form) && choices.update == UpdateTime::in_backward)
    throw InputError(fmt::format("{}: choices.update is in-backward, which state of {} cannot have", file, name_of(choices.form)),
                     std::string(kPlanWasEdited));
  PlanOutcome outcome;
  choices.gives_logits = request.gives_logits;
  Plan plan = build_schedule(graph, choices);
  const GraphCandidates& form = choices.experts_in_groups ? *graphs.in_groups : graphs;
  if (request.evaluates) plan.evaluate = build_evaluation(*form.tiled, plan);
  pack(plan);
  derive_waits(plan);
  for (const auto& [name, tier] : Names<Tier>::all) {
    const nlohmann::json::json_pointer place(fmt::format("/tiers/{}/peak_bytes", name));
    const nlohmann::json peak = json.contains(place) ? json.at(place) : nlohmann::json();
    if (!peak.is_number_integer() || peak.get<Bytes>() != plan.peak[tier]) {
      throw InputError(fmt::format("{}: tiers.{}.peak_bytes is {}, but these choices give {} bytes for this model and batch",
                                   file, name, peak.dump(), plan.peak[tier]),
                       std::string(kPlanWasEdited));
    }
  }
  refuse_other_operations(json, file, plan, graph);
  if (const std::optional<Tier> lacks = short_tier(plan.peak, request.budgets)) {
    outcome.short_tier = *lacks;
    outcome.needed = plan.peak[*lacks];
    outcome.budget = request.budgets[*lacks];
    return outcome;
  }
  outcome.prediction = predict(plan, graph, machine);
  outcome.plan = std::move(plan);
  return outcome;
}

}  // namespace spillway
