#include "trainer/plan/plan_choices.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "memory/error.h"
#include "trainer/host/json_place.h"

namespace spillway {
namespace {

// Reads with names of keys in every complaint.
class Fields {
 public:
  Fields(const nlohmann::json& json, std::string file) : json_(json), file_(std::move(file)) {}

  [[noreturn]] void refuse(const std::string& key, const std::string& why) const {
    throw InputError(fmt::format("{}: choices.{} {}", file_, key, why),
                     "Make the file with `spillway plan --format json --out FILE`.");
  }
  const nlohmann::json& at(const std::string& key) const {
    const auto found = json_.find(key);
    if (found == json_.end()) refuse(key, "is missing");
    return *found;
  }
  bool has(const std::string& key) const { return json_.contains(key); }
  std::int64_t integer(const std::string& key, std::int64_t least, std::int64_t most) const {
    const nlohmann::json& value = at(key);
    if (!value.is_number_integer() || value.get<std::int64_t>() < least || value.get<std::int64_t>() > most) {
      refuse(key, fmt::format("is {}, not an integer from {} to {}", value.dump(), least, most));
    }
    return value.get<std::int64_t>();
  }
  template <typename T>
  T one_of(const std::string& key, std::initializer_list<std::pair<std::string_view, T>> names) const {
    const nlohmann::json& value = at(key);
    for (const auto& [name, meaning] : names) {
      if (value.is_string() && value.get<std::string>() == name) return meaning;
    }
    refuse(key, fmt::format("is {}", value.dump()));
  }
  template <typename T>
  std::vector<T> runs(const std::string& key, std::size_t size, std::initializer_list<int> allowed) const {
    std::vector<T> values;
    const nlohmann::json& runs = at(key);
    if (!runs.is_array()) refuse(key, "is not an array");
    for (const nlohmann::json& run : runs) {
      if (!run.is_array() || run.size() != 2 || !run[0].is_number_integer() || !run[1].is_number_integer())
        refuse(key, fmt::format("has the entry {}", run.dump()));
      const std::int64_t value = run[0].get<std::int64_t>(), count = run[1].get<std::int64_t>();
      if (std::find(allowed.begin(), allowed.end(), value) == allowed.end() || count < 1 ||
          count > static_cast<std::int64_t>(size - values.size())) {
        refuse(key, fmt::format("has the entry {}", run.dump()));
      }
      values.insert(values.end(), static_cast<std::size_t>(count), static_cast<T>(value));
    }
    if (values.size() != size)
      refuse(key, fmt::format("covers {} of {} entries: the file is of another model", values.size(), size));
    return values;
  }

 private:
  const nlohmann::json& json_;
  std::string file_;
};

// Updates that may have to be taken back leave the state that they begin with as it is.
void refuse_what_cannot_be_taken_back(const Choices& choices, const Fields& fields) {
  const auto all_on_nvme = [](const std::vector<Tier>& tiers) {
    return std::ranges::all_of(tiers, [](Tier tier) { return tier == Tier::nvme; });
  };
  if (!speculates(choices) || (choices.slots == 2 && all_on_nvme(choices.weight_tier) && all_on_nvme(choices.optimizer_tier)))
    return;
  fields.refuse("update", "is in-backward with clipping, which takes two slots and all state on nvme");
}

void refuse_what_cannot_wait(const Choices& choices, const UnitGraph& graph, const Fields& fields) {
  for (std::size_t block = 0; block < choices.deferred.size(); ++block) {
    if (choices.deferred[block] == Deferred::no) continue;
    if (!may_defer_blocks(choices.update, choices.clip, choices.slots))
      fields.refuse("deferred", "has blocks whose update waits for the next forward, which the other choices do not let them");
    if (graph.blocks[block].looked_up)
      fields.refuse("deferred", fmt::format("has {}, whose weights are wanted first", graph.blocks[block].name));
  }
}

void read_tiers(Choices& choices, const UnitGraph& graph, const Fields& fields) {
  if (fields.has("tiers")) {
    const nlohmann::json all = {"device", "host", "nvme"};
    if (fields.at("tiers") != all) fields.refuse("tiers", fmt::format("is {}, not {}", fields.at("tiers").dump(), all.dump()));
    choices.chain = Chain::device_host_nvme;
  }
  const bool host = has_host(choices.chain);
  const std::initializer_list<int> with_host = {0, 1, 2}, without = {0, 2}, below = {1, 2};
  choices.weight_tier = fields.runs<Tier>("weight_tier", graph.blocks.size(), host ? with_host : without);
  choices.optimizer_tier = fields.runs<Tier>("optimizer_tier", graph.blocks.size(), host ? with_host : without);
  choices.gradient_tier = fields.runs<Tier>("gradient_tier", graph.blocks.size(), host ? with_host : without);
  if (!host) return;
  choices.update_tier = fields.one_of<Tier>("update_on", {{"device", Tier::device}, {"host", Tier::host}});
  choices.spill = fields.runs<Tier>("spill", graph.units.size(), below);
}

}  // namespace

Choices choices_of(const nlohmann::json& json, const std::string& file, const GraphCandidates& graphs) {
  if (!json.is_object() || !json.contains("choices") || !json["choices"].is_object() || !json.contains("tiers")) {
    throw InputError(fmt::format("{}: not a plan that fits: it has no choices", file),
                     "Make the file with `spillway plan --format json --out FILE`.");
  }
  const Fields fields(json["choices"], file);
  Choices choices;
  choices.graph = fields.one_of<int>("graph", {{"tiled", 0}, {"fused", 1}});
  const UnitGraph& graph = choices.graph == 0 ? *graphs.tiled : *graphs.fused;
  const JsonPlace parameters = JsonPlace(json, file, kPlanWasEdited).at("model").at("parameters");
  if (parameters.integer(1, INT64_MAX) != graph.parameters) {
    parameters.refuse(fmt::format("is {}, but this model has {}: the file is of another model", parameters.integer(1, INT64_MAX),
                                  graph.parameters));
  }
  choices.update = fields.one_of<UpdateTime>(
      "update",
      {{"after", UpdateTime::after}, {"in-backward", UpdateTime::in_backward}, {"in-next-forward", UpdateTime::in_next_forward}});
  choices.form = fields.one_of<StateForm>(
      "state", {{"exact", StateForm::exact}, {"compact", StateForm::compact}, {"fp32", StateForm::fp32}});
  choices.micro_batches = static_cast<int>(fields.integer("micro_batches", 1, kMostMicroBatches));
  choices.group = static_cast<int>(fields.integer("group", 1, choices.micro_batches));
  if (choices.micro_batches % choices.group != 0)
    fields.refuse("group", fmt::format("is no divisor of {}", choices.micro_batches));
  choices.strip = static_cast<int>(fields.integer("strip", 1, choices.group));
  if (strips_of(choices) > kMostStrips)
    fields.refuse("strip", fmt::format("makes {} strips, more than {}", strips_of(choices), kMostStrips));
  if (!fields.at("clip").is_boolean()) fields.refuse("clip", "is not true or false");
  choices.clip = fields.at("clip").get<bool>();
  choices.slots = static_cast<int>(fields.integer("slots", 1, 2));
  choices.durable_every = fields.integer("durable_every", 0, std::numeric_limits<std::int64_t>::max());
  choices.lookahead = static_cast<int>(fields.integer("lookahead", 0, 1 << 20));
  choices.update_spread = static_cast<int>(fields.integer("update_spread", 0, 1 << 20));
  choices.early_room = fields.integer("early_room", 0, std::numeric_limits<Bytes>::max());
  choices.update_chunk = fields.integer("update_chunk", kBlockElements, std::int64_t{1} << 40);
  if (choices.update_chunk % kBlockElements != 0)
    fields.refuse("update_chunk", fmt::format("is no multiple of {}", kBlockElements));
  read_tiers(choices, graph, fields);
  choices.deferred = fields.runs<Deferred>("deferred", graph.blocks.size(), {0, 1});
  choices.saved = fields.runs<Saved>("saved", graph.units.size(), {0, 1, 2});
  choices.boundary = fields.runs<Boundary>("boundary", graph.units.size(), {0, 1});
  choices.sharding = {.ranks = static_cast<int>(fields.integer("ranks", 1, 1 << 20)),
                      .group = static_cast<int>(fields.integer("zero_group_size", 1, 1 << 20)),
                      .stage = static_cast<int>(fields.integer("zero_stage", 0, 3))};
  if (choices.sharding.ranks % choices.sharding.group != 0) fields.refuse("zero_group_size", "is no divisor of the ranks");
  if (!fields.at("fetches_rows").is_boolean()) fields.refuse("fetches_rows", "is not true or false");
  choices.fetches_rows = fields.at("fetches_rows").get<bool>();
  if (choices.fetches_rows && !may_fetch_rows(graph, choices))
    fields.refuse("fetches_rows", "is true, but the other choices do not let rows be fetched");
  if (fields.at("order") != order_words(choices))
    fields.refuse("order", fmt::format("is {}, which is not what group {} is called: {}", fields.at("order").dump(),
                                       choices.group, order_words(choices)));
  refuse_what_cannot_wait(choices, graph, fields);
  refuse_what_cannot_be_taken_back(choices, fields);
  return choices;
}

}  // namespace spillway
