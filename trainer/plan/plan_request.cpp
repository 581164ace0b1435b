#include "trainer/plan/plan_request.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>

#include "memory/base/error.h"
#include "memory/plan/chain.h"
#include "trainer/words/quantity.h"

namespace spillway {
namespace {

// Number of micro-batches that go through all units together, if the flags give it.
std::optional<int> group_of(const RunOptions& options, int micro_batches) {
  switch (options.memory.order) {
    case OrderChoice::automatic: return std::nullopt;
    case OrderChoice::horizontal: return 1;
    case OrderChoice::vertical: return micro_batches;
    case OrderChoice::groups: break;
  }
  if (micro_batches % options.memory.order_group == 0) return static_cast<int>(options.memory.order_group);
  throw InputError(fmt::format("--order {}: the {} of a step are no multiple of it", options.memory.order_group,
                               counted(micro_batches, "micro-batch", "micro-batches")),
                   "Give a divisor of --global-batch-size / --micro-batch-size, or horizontal, vertical or auto.");
}

// The longest chain whose memory tiers all have bytes: the search decides whether to use a drive and where the device's budget
// ends.
Chain longest_chain(const Budgets& budgets) {
  Chain longest = Chain::device_nvme;
  for (std::size_t chain = 0; chain < std::size(kChains); ++chain) {
    const auto is_there = [&](Tier tier) { return tier == Tier::device || !in_memory(tier) || budgets[tier] > 0; };
    if (std::ranges::all_of(kChains[chain], is_there)) longest = static_cast<Chain>(chain);
  }
  return longest;
}

}  // namespace

PlanRequest plan_request(const RunOptions& options, const Budgets& budgets) {
  PlanRequest request;
  request.budgets = budgets;
  request.micro_batches = static_cast<int>(options.micro_batches());
  request.clip = options.optimizer.clip_grad > 0;
  const ParallelOptions& parallel = options.parallel;
  request.sharding = {.ranks = static_cast<int>(parallel.ranks),
                      .group = static_cast<int>(parallel.zero_group_size > 0 ? parallel.zero_group_size : parallel.ranks),
                      .stage = parallel.zero_stage.value_or(0)};
  request.any_stage = !parallel.zero_stage;
  request.form = form_of(options.precision);
  request.group = group_of(options, request.micro_batches);
  request.update = options.memory.update;
  request.chain = longest_chain(budgets);
  request.update_tier = options.memory.update_on;
  request.parameter_tier = options.memory.parameter_tier;
  request.optimizer_tier = options.memory.optimizer_tier;
  request.activations = options.memory.activation_tier;
  request.durability = options.memory.durability;
  if (options.memory.durability_interval > 0) request.durable_every = options.memory.durability_interval;
  // Steps that may be taken back are made durable one at a time.
  request.expected_clip_rate = options.memory.durability_interval > 1 ? 1.0 : options.optimizer.expected_clip_rate;
  request.gives_logits = options.log.sample_interval > 0;
  request.evaluates = options.data.evaluates() || request.gives_logits;
  return request;
}

}  // namespace spillway
