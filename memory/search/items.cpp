#include "memory/search/items.h"

#include <algorithm>
#include <array>

namespace spillway {
namespace {

// The kinds of items that may rest on the device; order_of() lists them in the order in which they are put there.
enum class Resting : std::uint8_t { boundary, saved, weights, gradients, optimizer, frozen };
// Frozen weights come last: elsewhere they are read, but nothing of them is written.
std::array<Resting, 6> order_of(Fill fill) {
  using enum Resting;
  if (fill == Fill::state_first) return {weights, gradients, optimizer, boundary, saved, frozen};
  return {boundary, weights, gradients, saved, optimizer, frozen};
}

// True where each turn adds to the gradients: whole sums move to and fro.
bool gradients_come_back(const Choices& choices) { return turns_of(choices) > 1; }

}  // namespace

std::vector<UnitValues> values_of_units(const UnitGraph& graph) {
  std::vector<UnitValues> of_units;
  std::vector<char> written(graph.values.size(), 0);
  for (const Unit& unit : graph.units) {
    UnitValues bytes;
    for (const ValueUse& use : unit.forward) {
      if (use.access == Access::read || written[use.value]) continue;
      written[use.value] = 1;
      (unit.saves(use.value) ? bytes.saved : bytes.boundary) += graph.values[use.value].bytes;
    }
    of_units.push_back(bytes);
  }
  return of_units;
}

Saved spare_of(const Unit& unit, const Outline& outline) { return unit.saved_piece > 0 ? outline.spare_pieces : outline.spare; }

// A gradient that its unit's backward completes and that is updated right then rests nowhere.
BlockBytes bytes_of(const ParameterBlock& block, const PlanRequest& request, const Choices& choices) {
  const Bytes gradient = gradients_come_back(choices)                ? 4
                         : choices.update == UpdateTime::in_backward ? 0
                                                                     : gradient_bytes_per_element(request.form);
  const Bytes weight =
      elements_at_rest(request.sharding, block, StateKind::weight) * state_of(block, request.form).front().each();
  return {.weight = weight,
          .gradient = waiting_elements(request.sharding, block) * gradient,
          .optimizer = bytes_at_rest(request.sharding, block, request.form) - weight};
}

Bytes spilled_bytes(const UnitValues& values, const Choices& choices, int unit) {
  const UnitPlace& place = choices.units[static_cast<std::size_t>(unit)];
  const Bytes bytes =
      (place.boundary == Boundary::spill ? values.boundary : 0) + (place.saved == Saved::spill ? values.saved : 0);
  return bytes * choices.group;
}

std::vector<int> most_within(const std::vector<Items>& of_kinds, Bytes room) {
  std::vector<int> counts;
  for (const Items& items : of_kinds) {
    int count = 0;
    while (count < std::ssize(items.sizes) && items.sizes[count] <= room) room -= items.sizes[count++];
    counts.push_back(count);
  }
  return counts;
}

namespace {

bool is_below(Chain chain, Tier tier, Tier other) { return depth_of(chain, tier) > depth_of(chain, other); }

// Moves the first places that are below a tier onto it.
template <typename Place>
std::function<void(Choices&, int)> raise_first(Tier onto, std::vector<Place> Choices::* places, Tier Place::* member) {
  return [=](Choices& choices, int count) {
    for (int i = 0; i < count; ++i) {
      Tier& tier = (choices.*places)[static_cast<std::size_t>(i)].*member;
      if (is_below(choices.chain, tier, onto)) tier = onto;
    }
  };
}

// The arrays of all blocks, by what they take of a tier: those that rest on it or above take nothing. Weights of frozen blocks
// are items of their own.
struct ItemsOfBlocks {
  Items weights, gradients, optimizer, frozen;
};
// Moves the weights of the first blocks onto a tier, of those that are frozen or of those that are not.
std::function<void(Choices&, int)> raise_weights(Tier onto, const UnitGraph& graph, bool frozen) {
  return [=, &graph](Choices& choices, int count) {
    for (std::size_t block = 0; block < static_cast<std::size_t>(count); ++block) {
      Tier& tier = choices.blocks[block].weight;
      if (graph.blocks[block].frozen == frozen && is_below(choices.chain, tier, onto)) tier = onto;
    }
  };
}
ItemsOfBlocks arrays_below(Tier onto, const UnitGraph& graph, const PlanRequest& request, const Choices& choices) {
  ItemsOfBlocks items{{{}, raise_weights(onto, graph, false)},
                      {{}, raise_first(onto, &Choices::blocks, &BlockPlace::gradient)},
                      {{}, raise_first(onto, &Choices::blocks, &BlockPlace::optimizer)},
                      {{}, raise_weights(onto, graph, true)}};
  for (std::size_t block = 0; block < graph.blocks.size(); ++block) {
    const auto taken = [&](Tier tier, Bytes bytes) { return is_below(choices.chain, tier, onto) ? bytes : 0; };
    const BlockPlace& place = choices.blocks[block];
    const BlockBytes bytes = bytes_of(graph.blocks[block], request, choices);
    const bool frozen = graph.blocks[block].frozen;
    items.weights.sizes.push_back(frozen ? 0 : taken(place.weight, bytes.weight));
    items.frozen.sizes.push_back(frozen ? taken(place.weight, bytes.weight) : 0);
    items.gradients.sizes.push_back(taken(place.gradient, bytes.gradient));
    items.optimizer.sizes.push_back(taken(place.optimizer, bytes.optimizer));
  }
  return items;
}

}  // namespace

namespace {

bool has_frozen(const UnitGraph& graph) { return std::ranges::any_of(graph.blocks, &ParameterBlock::frozen); }

}  // namespace

std::vector<Items> items_of_device(const UnitGraph& graph, const PlanRequest& request, const Outline& outline,
                                   const Choices& choices) {
  auto [weights, gradients, optimizer, frozen] = arrays_below(Tier::device, graph, request, choices);
  Items boundary{{}, [](Choices& c, int k) {
                   for (int unit = 0; unit < k; ++unit) c.units[unit].boundary = Boundary::keep;
                 }};
  // The last units' values come first: the backward wants them first, so they would rest elsewhere for the shortest time.
  Items saved{{}, [](Choices& c, int k) {
                for (std::size_t unit = c.units.size() - static_cast<std::size_t>(k); unit < c.units.size(); ++unit)
                  c.units[unit].saved = Saved::keep;
              }};
  const std::vector<UnitValues> of_units = values_of_units(graph);
  for (std::size_t unit = 0; unit < of_units.size(); ++unit) {
    boundary.sizes.push_back(outline.spare_boundary == Boundary::keep ? 0 : of_units[unit].boundary * choices.group);
    saved.sizes.push_back(choices.units[unit].saved == Saved::keep ? 0 : of_units[unit].saved * choices.group);
  }
  std::reverse(saved.sizes.begin(), saved.sizes.end());
  const bool may_keep = request.activations == SavedRequest::automatic || request.activations == SavedRequest::device;
  const bool rests = !speculates(choices);
  std::vector<Items> of_kinds;
  for (const Resting resting : order_of(outline.fill)) {
    switch (resting) {
      case Resting::boundary:
        if (may_keep) of_kinds.push_back(std::move(boundary));
        break;
      case Resting::saved:
        if (may_keep) of_kinds.push_back(std::move(saved));
        break;
      case Resting::weights:
        if (rests && !request.parameter_tier) of_kinds.push_back(std::move(weights));
        break;
      case Resting::frozen:
        if (!request.parameter_tier && has_frozen(graph)) of_kinds.push_back(std::move(frozen));
        break;
      case Resting::gradients:
        // Gradients that go to the host anyway wait there, unless they come back in each turn.
        if (choices.update_tier == Tier::device || gradients_come_back(choices)) of_kinds.push_back(std::move(gradients));
        break;
      case Resting::optimizer:
        // State that the host updates rests there, or below.
        if (rests && !request.optimizer_tier && choices.update_tier == Tier::device) of_kinds.push_back(std::move(optimizer));
        break;
    }
  }
  return of_kinds;
}

// The arrays that are moved most often for their bytes come first: weights, which both passes move to and fro.
std::vector<Items> items_of(Tier between, const UnitGraph& graph, const PlanRequest& request, const Choices& choices) {
  auto [weights, gradients, optimizer, frozen] = arrays_below(between, graph, request, choices);
  Items spilled{{}, raise_first(between, &Choices::units, &UnitPlace::spill)};
  const std::vector<UnitValues> of_units = values_of_units(graph);
  for (std::size_t unit = 0; unit < of_units.size(); ++unit) {
    spilled.sizes.push_back(is_below(choices.chain, choices.units[unit].spill, between)
                                ? spilled_bytes(of_units[unit], choices, static_cast<int>(unit))
                                : 0);
  }
  std::vector<Items> of_kinds;
  if (!request.parameter_tier) of_kinds.push_back(std::move(weights));
  of_kinds.push_back(std::move(gradients));
  if (!request.optimizer_tier) of_kinds.push_back(std::move(optimizer));
  if (request.activations == SavedRequest::automatic) of_kinds.push_back(std::move(spilled));
  if (!request.parameter_tier && has_frozen(graph)) of_kinds.push_back(std::move(frozen));
  return of_kinds;
}

}  // namespace spillway
