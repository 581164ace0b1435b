// The request for a plan: budgets, what the user fixed, and the model in the forms that the search may choose among.
// Not here: the search (planner.h).
#pragma once

#include <cstdint>
#include <optional>

#include "memory/plan/plan.h"
#include "memory/search/outline.h"

namespace spillway {

using Budgets = By<Tier, Bytes>;  // 0: there is no such tier; of NVMe: no directory

// The first tier, in the order of Tier, of which a plan takes more than its budget; nothing: the plan fits.
inline std::optional<Tier> short_tier(const By<Tier, Bytes>& peak, const Budgets& budgets) {
  for (const Tier tier : kAll<Tier>) {
    if (peak[tier] > budgets[tier]) return tier;
  }
  return std::nullopt;
}

// fastest: the fastest plan. any: the first plan found to fit, without a search for a better one, to know that there is one.
// time: the fastest plan's time without the plan.
enum class Goal : std::uint8_t { fastest, any, time };

// Far more than anybody trains with. The tokens and losses of all micro-batches of a step are in memory at once.
inline constexpr std::int64_t kMostMicroBatches = 1 << 20;

// The tier that activations are asked to rest on, if one was named.
inline std::optional<Tier> tier_of(SavedRequest activations) { return value_of<Tier>(name_of(activations)); }

// The user's demands; the search chooses the rest.
struct PlanRequest {
  Budgets budgets;
  Chain chain = Chain::device_nvme;  // of the machine
  int micro_batches = 1;
  bool clip = true;
  StateForm form = StateForm::exact;
  Sharding sharding;
  bool any_stage = false;    // true: the search chooses sharding.stage, too
  std::optional<int> group;  // micro-batches that go through all units together: a divisor of them
  std::optional<UpdateTime> update;
  std::optional<Tier> parameter_tier, optimizer_tier;
  std::optional<Tier> update_tier;  // device, or host where the chain has one
  SavedRequest activations = SavedRequest::automatic;
  Durability durability = Durability::automatic;
  std::optional<Bytes> ahead;            // Choices::ahead; for tests and experiments
  std::int64_t durable_every = kSeldom;  // see Choices
  bool evaluates = false;                // the plan must have room for evaluation, too
  bool gives_logits = false;             // and for the logits of one row
  double expected_clip_rate = 1;
  Goal goal = Goal::fastest;
  double effort = 1;         // share of its full cost that the search may spend; 0: it looks no farther than `like`, if that fits
  std::optional<Like> like;  // weighed before all others
};

// The model, compiled for each way that the loss can go through the vocabulary; `tiled` and `fused` have the same blocks.
struct GraphCandidates {
  const UnitGraph* tiled = nullptr;  // also what evaluation runs
  const UnitGraph* fused = nullptr;
  // The same model with fewer layers, on which outlines of a plan are weighed; null where the model has few layers.
  const UnitGraph* thin_tiled = nullptr;
  const UnitGraph* thin_fused = nullptr;
  // The same of a mixture whose groups of experts are units of their own; null where the model has no such form.
  const GraphCandidates* in_groups = nullptr;
};
inline const UnitGraph& graph_of(const GraphCandidates& graphs, const Choices& choices) {
  const GraphCandidates& of = choices.experts_in_groups ? *graphs.in_groups : graphs;
  return choices.graph == 0 ? *of.tiled : *of.fused;
}

}  // namespace spillway
