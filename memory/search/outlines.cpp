#include "memory/search/outlines.h"

#include <fmt/core.h>

#include <algorithm>

namespace spillway {
namespace {

constexpr int kGroups[] = {64, 16, 1};
constexpr int kPassesOfATurn = 1 << 13, kLeastStrips = 2;

}  // namespace

std::string Outlines::refusal() const {
  for (const Tier tier : kAll<Tier>) {
    if (tier == Tier::device || !forced_to(tier)) continue;
    if (is_in(request_.chain, tier) && request_.budgets[tier] > 0) continue;
    return fmt::format("a tier is forced to {}, but there is {}", name_of(tier),
                       in_memory(tier) ? "no such memory" : "no --nvme directory with room for a block");
  }
  if (request_.update && speculates(*request_.update, request_.clip) && has_memory_below(request_.chain)) {
    return "--update in-backward with --clip-grad runs the update before the norm is known and must be able to take it back, "
           "which this version cannot with a device of its own: use --clip-grad 0, or another --update";
  }
  if (request_.update && speculates(*request_.update, request_.clip) && !may_take_back()) {
    return "--update in-backward with --clip-grad runs the update before the norm is known and must be able to take it back: "
           "all parameters and optimizer states must rest on NVMe with two slots (--parameter-tier nvme --optimizer-tier nvme "
           "--durability step), or clipping be off (--clip-grad 0)";
  }
  return {};
}

std::vector<Outlines::Spare> Outlines::spares() const {
  if (spills_all()) return {{Saved::spill, Boundary::spill}};
  if (request_.activations == SavedRequest::device) return {{Saved::keep, Boundary::keep}};
  if (request_.activations == SavedRequest::recompute || !has_below()) return {{Saved::recompute, Boundary::keep}};
  return {{Saved::recompute, Boundary::keep},
          {Saved::spill, Boundary::keep},
          {Saved::recompute, Boundary::spill},
          {Saved::spill, Boundary::spill}};
}

// Rates decide whether logits that do not stay are better spilled to a tier below or made again; the search tries both.
Saved Outlines::spare_pieces() const {
  if (spills_all()) return Saved::spill;
  if (request_.activations != SavedRequest::automatic || !has_below()) return Saved::recompute;
  const Tier below = tiers_of(request_.chain)[1];
  const auto rate = [&](Tier from, Tier to) { return mixed_rate(machine_, *rate_of(lane_between(from, to))); };
  const double read_bytes = rate(below, Tier::device), written_bytes = rate(Tier::device, below);
  double made_s = 0, moved_s = 0;
  for (const Unit& unit : graphs_.tiled->units) {
    if (unit.saved_piece == 0) continue;
    made_s += seconds_of(machine_, *graphs_.tiled, unit.forward_work);
    for (const int value : unit.saved) {
      const auto bytes = static_cast<double>(graphs_.tiled->values[value].bytes);
      moved_s += bytes / read_bytes + bytes / written_bytes;
    }
  }
  return moved_s < made_s ? Saved::spill : Saved::recompute;
}

// Groups to try: all micro-batches at once, so that weights come once for all; one at a time, so that nothing is kept for others;
// and groups of up to 64 and 16 where there are many, as what a large group keeps and stages outweighs the weights that it saves.
std::vector<int> Outlines::groups() const {
  if (request_.group) return {*request_.group};
  std::vector<int> found;
  for (const int most : kGroups) {
    int group = std::min(most, request_.micro_batches);
    while (request_.micro_batches % group != 0) --group;
    if (found.empty() || group < found.back()) found.push_back(group);
  }
  return found;
}

// A model of many units gets fewer strips: short strips gain less than they lengthen its program.
int Outlines::most_strips() const {
  return std::clamp(kPassesOfATurn / static_cast<int>(graphs_.tiled->units.size()), kLeastStrips, kMostStrips);
}

std::vector<UpdateTime> Outlines::updates() const {
  if (request_.update) return {*request_.update};
  std::vector<UpdateTime> updates = {UpdateTime::after};
  // With clipping, a step that is clipped runs twice: worth a try where that is rare. What may overflow waits for its verdict.
  const bool may_follow = !request_.clip || (request_.expected_clip_rate < 1 && may_take_back());
  if (may_follow && !may_overflow(request_.form)) updates.push_back(UpdateTime::in_backward);
  updates.push_back(UpdateTime::in_next_forward);
  return updates;
}

std::vector<Tier> Outlines::update_tiers() const {
  if (!has_host(request_.chain)) return {Tier::device};
  if (request_.update_tier) return {*request_.update_tier};
  return {Tier::host, Tier::device};
}

std::vector<Outline> Outlines::all(Pace pace) const {
  std::vector<Outline> outlines;
  const bool tight = pace == Pace::tight;
  Outline outline{.spare_pieces = tight ? Saved::recompute : spare_pieces(),
                  .slots = slots(),
                  .ahead = request_.ahead.value_or(tight ? 0 : first_ahead())};
  outline.strips = most_strips();
  for (const int graph : {1, 0}) {
    for (const int group : groups()) {
      for (const UpdateTime update : updates()) {
        for (const Tier tier : update_tiers()) {
          outline.graph = graph, outline.group = group, outline.update = update, outline.update_tier = tier;
          outline.update_chunk = tight ? least_chunk() : chunk(tier);
          add(outlines, outline, pace);
        }
      }
    }
  }
  return outlines;
}

Outline Outlines::as_asked(Outline outline) const {
  outline.update = request_.update.value_or(outline.update);
  outline.slots = slots();
  if (!may_defer(outline.update)) outline.deferred = 0;
  return outline;
}

// Adds the outline once for each way to treat values that do not stay.
void Outlines::add(std::vector<Outline>& outlines, const Outline& outline, Pace pace) const {
  const bool lookups_may_rest = pace != Pace::tight && has_room_for_lookups();
  for (const Spare& spare : spares()) {
    outlines.push_back(outline);
    outlines.back().spare = spare.saved;
    outlines.back().spare_boundary = spare.boundary;
    if (pace != Pace::tight && may_defer(outline.update)) {
      Outline deferring = outlines.back();
      deferring.deferred = 1;
      outlines.push_back(deferring);
    }
    // Optimizer state first keeps an embedding's update out of the way: its gradient comes last, its weights are wanted first.
    if (!lookups_may_rest || outline.update == UpdateTime::after || spare.boundary == Boundary::spill) continue;
    Outline resting = outlines.back();
    resting.deferred = 0;
    resting.fill = Fill::state_first;
    outlines.push_back(resting);
  }
}

// True when the blocks that are looked up may rest on the device beside all else: their state takes at most half of it.
bool Outlines::has_room_for_lookups() const {
  Bytes state = 0;
  for (const ParameterBlock& block : graphs_.tiled->blocks) {
    if (block.looked_up) state += bytes_at_rest(request_.sharding, block, request_.form);
  }
  return has_disk() && 2 * state <= request_.budgets[Tier::device];
}

// Twice the largest weights of a unit: the next unit's weights are there when it begins.
Bytes Outlines::first_ahead() const { return std::min(2 * largest_weights(*graphs_.tiled, request_.form), farthest_ahead()); }

// Half of the device. Where activations are forced off the device, also at most a quarter of their bytes: they would never leave
// it if all of them were on their way back.
Bytes Outlines::farthest_ahead() const {
  if (!spills_all()) return request_.budgets[Tier::device] / 2;
  Bytes spilled = 0;
  for (const Unit& unit : graphs_.tiled->units) {
    for (const int value : unit.saved) spilled += graphs_.tiled->values[static_cast<std::size_t>(value)].bytes;
  }
  return std::min(request_.budgets[Tier::device] / 2, spilled / 4);
}

std::int64_t Outlines::chunk(Tier tier) const {
  constexpr Bytes in_flight = 5, bytes_per_element = 12;
  constexpr std::int64_t not_many = 1 << 13;  // chunks: where there would be more, each may take twice the room
  const Bytes budget = request_.budgets[tier];
  std::int64_t elements = least_chunk();
  const auto room = [&] { return elements * not_many < graphs_.tiled->parameters ? budget / 4 : budget / 8; };
  while (elements < (64 << 20) && 2 * elements * in_flight * bytes_per_element <= room()) elements *= 2;
  return elements;
}

// A plan lists every chunk, so a large model has larger ones.
std::int64_t Outlines::least_chunk() const {
  constexpr std::int64_t chunks_at_most = 1 << 14;
  std::int64_t elements = 64 << 10;
  while (elements * chunks_at_most < graphs_.tiled->parameters) elements *= 2;
  return elements;
}

int Outlines::slots() const {
  if (request_.durability == Durability::checkpoint) return 1;
  if (request_.durability == Durability::step) return 2;
  Bytes state = 0;  // with slots and gradients
  for (const ParameterBlock& block : graphs_.tiled->blocks) {
    state += (block.frozen ? 1 : 2) * bytes_at_rest(request_.sharding, block, request_.form);
    state += gradient_bytes_per_element(request_.form) * waiting_elements(request_.sharding, block);
  }
  return state <= request_.budgets[Tier::nvme] ? 2 : 1;
}

}  // namespace spillway
