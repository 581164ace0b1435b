#include "trainer/plan/plan_choices.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>
#include <vector>

#include "files/json_place.h"
#include "files/strict_json.h"
#include "memory/base/error.h"

namespace spillway {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kMakeOne = "Make the file with `spillway plan --format json --out FILE`.";

// Names of the two vocabulary heads in plan files.
constexpr std::string_view kGraphs[] = {"tiled", "fused"};

int graph_named(const JsonPlace& place) {
  const auto* graph = std::ranges::find(kGraphs, std::string_view(place.text()));
  if (graph == std::end(kGraphs)) place.refuse(fmt::format("is {}; tiled or fused is allowed", shown(place.json())));
  return static_cast<int>(graph - kGraphs);
}

template <typename Place, typename T>
Json runs_of(const std::vector<Place>& places, T Place::* member) {  // [[value, count], ...]
  Json runs = Json::array();
  for (std::size_t i = 0; i < places.size();) {
    std::size_t end = i;
    while (end < places.size() && places[end].*member == places[i].*member) ++end;
    runs.push_back({static_cast<int>(places[i].*member), end - i});
    i = end;
  }
  return runs;
}

template <typename Place, typename T>
void read_runs(const JsonPlace& place, std::span<const std::type_identity_t<T>> allowed, T Place::* member,
               std::vector<Place>& places) {
  const std::size_t size = places.size();
  std::size_t read = 0;
  for (std::size_t i = 0; i < place.size(); ++i) {
    const JsonPlace run = place.at(i);
    if (run.size() != 2) run.refuse(fmt::format("is {}, not a value and how often it comes", shown(run.json())));
    const auto value = static_cast<T>(run.at(0).integer(0, 255));
    const std::int64_t count = run.at(1).integer(1, static_cast<std::int64_t>(size));
    if (std::ranges::find(allowed, value) == allowed.end() || count > static_cast<std::int64_t>(size - read))
      run.refuse(fmt::format("is {}, which cannot be here", shown(run.json())));
    for (const std::size_t end = read + static_cast<std::size_t>(count); read < end; ++read) places[read].*member = value;
  }
  if (read != size) place.refuse(fmt::format("covers {} of {} entries: the file is of another model", read, size));
}

Json names_of(std::span<const Tier> tiers) {
  Json names = Json::array();
  for (const Tier tier : tiers) names.push_back(name_of(tier));
  return names;
}

// For a chain with memory below the device: adds its tiers and the choices that depend on them.
void add_chain(Json& json, const Choices& choices) {
  if (!has_memory_below(choices.chain)) return;
  json["tiers"] = names_of(tiers_of(choices.chain));
  json["update_on"] = name_of(choices.update_tier);
  json["spill"] = runs_of(choices.units, &UnitPlace::spill);
}

// Updates that may have to be taken back must not overwrite the state that they begin with.
void refuse_what_cannot_be_taken_back(const Choices& choices, const JsonPlace& fields) {
  const bool all_on_nvme = std::ranges::none_of(
      choices.blocks, [](const BlockPlace& place) { return in_memory(place.weight) || in_memory(place.optimizer); });
  if (!speculates(choices) || (choices.slots == 2 && all_on_nvme)) return;
  fields.at("update").refuse("is in-backward with clipping, which takes two slots and all state on nvme");
}

void refuse_what_cannot_wait(const Choices& choices, const UnitGraph& graph, const JsonPlace& fields) {
  for (std::size_t block = 0; block < choices.blocks.size(); ++block) {
    if (choices.blocks[block].deferred == Deferred::no) continue;
    if (!may_defer_blocks(choices.update, choices.clip, choices.slots))
      fields.at("deferred").refuse("has blocks whose update waits for the next forward, which the other choices do not let them");
    if (graph.blocks[block].looked_up)
      fields.at("deferred").refuse(fmt::format("has {}, whose weights are wanted first", graph.blocks[block].name));
  }
}

void read_tiers(Choices& choices, const JsonPlace& fields) {
  if (fields.has("tiers")) {
    const JsonPlace tiers = fields.at("tiers");
    const auto is_it = [names = tiers.json().dump()](std::span<const Tier> chain) { return names_of(chain).dump() == names; };
    const auto* const found = std::ranges::find_if(kChains, is_it);
    if (found == std::end(kChains)) tiers.refuse(fmt::format("is {}, which is no chain of tiers", shown(tiers.json())));
    choices.chain = static_cast<Chain>(found - std::begin(kChains));
  }
  const std::span<const Tier> tiers = tiers_of(choices.chain);
  read_runs(fields.at("weight_tier"), tiers, &BlockPlace::weight, choices.blocks);
  read_runs(fields.at("optimizer_tier"), tiers, &BlockPlace::optimizer, choices.blocks);
  read_runs(fields.at("gradient_tier"), tiers, &BlockPlace::gradient, choices.blocks);
  if (!has_memory_below(choices.chain)) return;
  choices.update_tier = fields.at("update_on").named<Tier>();
  if (!computes(choices.update_tier))
    fields.at("update_on").refuse(fmt::format("is {}, where nothing computes", name_of(choices.update_tier)));
  read_runs(fields.at("spill"), tiers.subspan(1), &UnitPlace::spill, choices.units);
}

}  // namespace

Json choices_json(const Choices& choices) {
  Json json = {{"graph", kGraphs[choices.graph]},
               {"order", order_words(choices)},
               {"update", name_of(choices.update)},
               {"micro_batches", choices.micro_batches},
               {"group", choices.group},
               {"strip", choices.strip},
               {"clip", choices.clip},
               {"state", name_of(choices.form)},
               {"slots", choices.slots},
               {"durable_every", choices.durable_every},
               {"ahead", choices.ahead},
               {"ranks", choices.sharding.ranks},
               {"zero_group_size", choices.sharding.group},
               {"zero_stage", choices.sharding.stage},
               {"update_chunk", choices.update_chunk},
               {"weight_tier", runs_of(choices.blocks, &BlockPlace::weight)},
               {"optimizer_tier", runs_of(choices.blocks, &BlockPlace::optimizer)},
               {"gradient_tier", runs_of(choices.blocks, &BlockPlace::gradient)},
               {"deferred", runs_of(choices.blocks, &BlockPlace::deferred)},
               {"saved", runs_of(choices.units, &UnitPlace::saved)},
               {"boundary", runs_of(choices.units, &UnitPlace::boundary)}};
  if (choices.experts_in_groups) json["experts_in_groups"] = true;
  add_chain(json, choices);
  return json;
}

Choices choices_of(const nlohmann::json& json, const std::string& file, const GraphCandidates& graphs) {
  if (!json.is_object() || !json.contains("choices") || !json["choices"].is_object() || !json.contains("tiers")) {
    throw InputError(fmt::format("{}: not a plan that fits: it has no choices", file), std::string(kMakeOne));
  }
  const JsonPlace fields = JsonPlace(json, file, kMakeOne).at("choices");
  Choices choices;
  choices.graph = graph_named(fields.at("graph"));
  if (fields.has("experts_in_groups")) {
    const JsonPlace place = fields.at("experts_in_groups");
    choices.experts_in_groups = place.boolean();
    if (choices.experts_in_groups && graphs.in_groups == nullptr) place.refuse("is true, but this model has no such groups");
  }
  const UnitGraph& graph = graph_of(graphs, choices);
  const JsonPlace parameters = JsonPlace(json, file, kPlanWasEdited).at("model").at("parameters");
  if (parameters.integer(1, INT64_MAX) != graph.parameters) {
    parameters.refuse(fmt::format("is {}, but this model has {}: the file is of another model", parameters.integer(1, INT64_MAX),
                                  graph.parameters));
  }
  choices.update = fields.at("update").named<UpdateTime>();
  choices.form = fields.at("state").named<StateForm>();
  choices.micro_batches = static_cast<int>(fields.at("micro_batches").integer(1, kMostMicroBatches));
  choices.group = static_cast<int>(fields.at("group").integer(1, choices.micro_batches));
  if (choices.micro_batches % choices.group != 0)
    fields.at("group").refuse(fmt::format("is no divisor of {}", choices.micro_batches));
  choices.strip = static_cast<int>(fields.at("strip").integer(1, choices.group));
  if (strips_of(choices) > kMostStrips)
    fields.at("strip").refuse(fmt::format("makes {} strips, more than {}", strips_of(choices), kMostStrips));
  choices.clip = fields.at("clip").boolean();
  choices.slots = static_cast<int>(fields.at("slots").integer(1, 2));
  choices.durable_every = fields.at("durable_every").integer(0, std::numeric_limits<std::int64_t>::max());
  choices.ahead = fields.at("ahead").integer(0, std::numeric_limits<Bytes>::max());
  choices.update_chunk = fields.at("update_chunk").integer(kBlockElements, std::int64_t{1} << 40);
  if (choices.update_chunk % kBlockElements != 0)
    fields.at("update_chunk").refuse(fmt::format("is no multiple of {}", kBlockElements));
  choices.blocks.resize(graph.blocks.size());
  choices.units.resize(graph.units.size());
  read_tiers(choices, fields);
  read_runs(fields.at("deferred"), std::array{Deferred::no, Deferred::yes}, &BlockPlace::deferred, choices.blocks);
  read_runs(fields.at("saved"), std::array{Saved::keep, Saved::recompute, Saved::spill}, &UnitPlace::saved, choices.units);
  read_runs(fields.at("boundary"), std::array{Boundary::keep, Boundary::spill}, &UnitPlace::boundary, choices.units);
  choices.sharding = {.ranks = static_cast<int>(fields.at("ranks").integer(1, 1 << 20)),
                      .group = static_cast<int>(fields.at("zero_group_size").integer(1, 1 << 20)),
                      .stage = static_cast<int>(fields.at("zero_stage").integer(0, 3))};
  if (choices.sharding.ranks % choices.sharding.group != 0) fields.at("zero_group_size").refuse("is no divisor of the ranks");
  if (fields.has("fetches_rows") && fields.at("fetches_rows").boolean())
    fields.at("fetches_rows").refuse("is true, of a version of spillway that fetched rows of embeddings one by one");
  if (const JsonPlace order = fields.at("order"); order.text() != order_words(choices)) {
    order.refuse(
        fmt::format("is {}, which is not what group {} is called: {}", shown(order.json()), choices.group, order_words(choices)));
  }
  refuse_what_cannot_wait(choices, graph, fields);
  refuse_what_cannot_be_taken_back(choices, fields);
  return choices;
}

}  // namespace spillway
