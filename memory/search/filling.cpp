#include "memory/search/filling.h"

#include <algorithm>
#include <iterator>
#include <limits>

#include "memory/passes/packing.h"
#include "memory/passes/schedule.h"
#include "memory/passes/waits.h"

namespace spillway {
namespace {

// One filling builds at most so many plans (of the whole model, of a sample), and operations in them, to find what rests on the
// device. It builds no further plan to use up less than 1/kRoomNotWorthAPlan of the budget.
constexpr int kPlansOfAFilling = 8, kPlansOfASample = 5, kStripsOfASample = 4;
constexpr std::size_t kOperationsOfAFilling = 450'000;
constexpr Bytes kRoomNotWorthAPlan = 200;
// A byte that is dealt takes at least kLeastTaken of a byte of the room, by estimate. A guess goes up to kSurely of the room that
// is left, as the estimate from a few items need not hold for all, and up to kNearest of the way to what lacks.
constexpr double kLeastTaken = 0.4, kSurely = 0.85, kNearest = 0.95;

Tier spill_of(const PlanRequest& request, Tier spare) {
  if (!has_memory_below(request.chain)) return Tier::nvme;
  const std::optional<Tier> fixed = tier_of(request.activations);
  return fixed && *fixed != Tier::device ? *fixed : spare;
}

// Defers the updates of blocks with `share` of all elements to the next forward. Deferred blocks lie as evenly among the others
// as possible, so that the moves of their state do, too. Their gradients rest where they are updated.
void defer_evenly(const UnitGraph& graph, double share, Choices& choices) {
  double due = 0;
  for (std::size_t block = 0; block < graph.blocks.size() && share > 0; ++block) {
    if (graph.blocks[block].looked_up || graph.blocks[block].frozen) continue;
    const auto elements = static_cast<double>(graph.blocks[block].elements);
    due += share * elements;
    if (2 * due < elements) continue;
    choices.blocks[block].deferred = Deferred::yes;
    choices.blocks[block].gradient = choices.update_tier;
    due -= elements;
  }
}

}  // namespace

std::vector<Tier> Filling::spare_tiers() const {
  std::vector<Tier> spares;
  for (const Tier tier : tiers_of(request_.chain).subspan(1)) {
    if (request_.budgets[tier] > 0) spares.push_back(tier);
  }
  return spares.empty() ? std::vector{Tier::device} : spares;
}

Choices Filling::start(const Outline& outline, Tier spare) const {
  Choices choices;
  choices.graph = outline.graph;
  const UnitGraph& graph = graph_of(graphs_, choices);
  choices.chain = request_.chain;
  choices.update_tier = outline.update_tier;
  choices.update = outline.update;
  choices.micro_batches = request_.micro_batches;
  set_group(choices, outline.group, whole_ == nullptr ? outline.strips : std::min(outline.strips, kStripsOfASample));
  choices.clip = request_.clip;
  choices.form = request_.form;
  choices.sharding = request_.sharding;
  choices.slots = outline.slots;
  choices.durable_every = choices.slots == 2 ? request_.durable_every : 0;
  choices.ahead = outline.ahead;
  choices.update_chunk = outline.update_chunk;
  choices.gives_logits = request_.gives_logits;
  choices.blocks.assign(graph.blocks.size(), {.weight = request_.parameter_tier.value_or(spare),
                                              .optimizer = request_.optimizer_tier.value_or(spare),
                                              .gradient = spare});
  const bool may_defer = may_defer_blocks(choices.update, choices.clip, choices.slots);
  if (may_defer) defer_evenly(graph, static_cast<double>(outline.deferred) / Outline::kDeferredWhole, choices);
  for (const Unit& unit : graph.units)
    choices.units.push_back({spare_of(unit, outline), outline.spare_boundary, spill_of(request_, spare)});
  return choices;
}

Plan Filling::build(const Choices& choices) {
  ++plans_built_;
  Plan plan = build_schedule(graph_of(graphs_, choices), choices);
  if (request_.evaluates) plan.evaluate = build_evaluation(*graphs_.tiled, plan);
  pack(plan);
  operations_built_ += plan.step.ops.size();
  return plan;
}

void Filling::build_last(const Choices& choices) {
  last_ = {};  // two large plans must not be in memory at once
  last_ = build(choices);
  last_has_waits_ = false;
}

Plan Filling::take_plan_of(const Choices& choices) {
  const Plan& plan = plan_of(choices);
  return &plan == &last_ ? std::exchange(last_, {}) : Plan(plan);
}

// A plan of the same choices that was built before the search; null where there is none.
const Plan* Filling::plan_at_hand(const Choices& choices) const {
  return request_.like && request_.like->plan->choices == choices ? request_.like->plan : nullptr;
}

const Plan& Filling::plan_of(const Choices& choices) {
  if (const Plan* plan = plan_at_hand(choices)) return *plan;
  if (last_.step.ops.empty() || last_.choices != choices) build_last(choices);
  if (!std::exchange(last_has_waits_, true)) derive_waits(last_);
  return last_;
}

By<Tier, Bytes> Filling::peak_of(const Choices& choices) {
  if (const Plan* plan = plan_at_hand(choices)) return plan->peak;
  const auto known = std::ranges::find(peaks_, choices, &std::pair<Choices, By<Tier, Bytes>>::first);
  if (known != peaks_.end()) return known->second;
  build_last(choices);
  return peaks_.emplace_back(choices, last_.peak).second;
}

bool Filling::accept(const Choices& choices) {
  const By<Tier, Bytes> peak = peak_of(choices);
  std::optional<Lack> lack;
  Bytes total = 0;
  for (const Tier tier : tiers_of(request_.chain)) {
    room_[tier] = limits_[tier] - peak[tier];
    if (room_[tier] >= 0) continue;
    if (!lack || lack->needed - lack->budget < -room_[tier]) lack = Lack{tier, peak[tier], limits_[tier]};
    total -= room_[tier];
  }
  if (!lack) {
    fitting_ = choices;
    return true;
  }
  if (!least_lack_ || total < least_total_) {
    least_lack_ = lack;
    least_total_ = total;
  }
  return false;
}

std::optional<Choices> Filling::in_core(const Outline& outline) {
  Choices choices = start(outline, spare_tier());
  if (speculates(choices) || choices.update_tier != Tier::device) return std::nullopt;
  const UnitGraph& graph = graph_of(graphs_, choices);
  Bytes resident = 0;
  for (const ParameterBlock& block : graph.blocks) resident += bytes_at_rest(request_.sharding, block, request_.form);
  if (resident > request_.budgets[Tier::device]) return std::nullopt;
  for (const auto array : {&BlockPlace::weight, &BlockPlace::optimizer, &BlockPlace::gradient})
    set_all(choices.blocks, array, Tier::device);
  if (request_.activations == SavedRequest::automatic || request_.activations == SavedRequest::device) {
    set_all(choices.units, &UnitPlace::boundary, Boundary::keep);
    set_all(choices.units, &UnitPlace::saved, Saved::keep);
  }
  limits_ = request_.budgets;
  if (!accept(choices)) return std::nullopt;
  return fitting_;
}

std::optional<Choices> Filling::as_in(const Outline& outline, const Like& like) {
  const Choices& others = like.plan->choices;
  Choices choices = start(outline, spare_tier());
  for (std::size_t block = 0; block < choices.blocks.size(); ++block) {
    BlockPlace place = others.blocks[block];
    place.deferred = choices.blocks[block].deferred;
    if (place.deferred == Deferred::yes) place.gradient = choices.update_tier;
    choices.blocks[block] = place;
  }
  choices.units = others.units;
  limits_ = request_.budgets;
  filled_ = like.filled;
  if (!accept(choices)) return std::nullopt;
  return fitting_;
}

Bytes Filling::state_on(Tier tier, const Choices& choices) const {
  const UnitGraph& graph = graph_of(graphs_, choices);
  Bytes state = 0;
  for (std::size_t block = 0; block < graph.blocks.size(); ++block) {
    const BlockBytes bytes = bytes_of(graph.blocks[block], request_, choices);
    if (choices.blocks[block].weight == tier) state += bytes.weight;
    if (choices.blocks[block].optimizer == tier) state += bytes.optimizer;
  }
  return state;
}

Bytes Filling::others_on(Tier tier, const Choices& choices) const {
  const UnitGraph& graph = graph_of(graphs_, choices);
  Bytes others = 0;
  for (std::size_t block = 0; block < graph.blocks.size(); ++block) {
    if (choices.blocks[block].gradient == tier) others += bytes_of(graph.blocks[block], request_, choices).gradient;
  }
  const std::vector<UnitValues> of_units = values_of_units(graph);
  for (int unit = 0; unit < std::ssize(of_units); ++unit) {
    if (choices.units[static_cast<std::size_t>(unit)].spill == tier) others += spilled_bytes(of_units[unit], choices, unit);
  }
  return others;
}

// True when the tiers from the device to the spare one, and those that some of the state is forced to, cannot hold the state,
// whatever a plan deals out.
bool Filling::is_beyond(Tier spare, const Choices& bare) const {
  Bytes room = 0, state = 0;
  for (const Tier tier : tiers_of(request_.chain)) {
    const Bytes resting = state_on(tier, bare);
    if (resting > 0 || depth_of(request_.chain, tier) <= depth_of(request_.chain, spare)) room += limits_[tier];
    state += resting;
  }
  return state > room;
}

// Each tier takes as much as it has room for, and the last one takes the rest: the device may take what is too much for it.
void Filling::relieve(Choices& choices, Tier spare, Bytes lacking) const {
  const int last = depth_of(request_.chain, spare) - 1;
  for (int depth = 1; depth <= last; ++depth) {
    const Tier tier = tiers_of(request_.chain)[static_cast<std::size_t>(depth)];
    Bytes taken = depth == last ? lacking : std::min(lacking, limits_[tier] - state_on(tier, choices) - others_on(tier, choices));
    for (const Items& items : items_of(tier, graph_of(graphs_, choices), request_, choices)) {
      int count = 0;
      while (taken > 0 && count < std::ssize(items.sizes)) {
        taken -= items.sizes[count];
        lacking -= items.sizes[count++];
      }
      items.raise_first(choices, count);
    }
  }
}

Bytes Filling::kept_bytes(const UnitGraph& graph, const Outline& outline) const {
  Bytes kept = 0;
  const std::vector<UnitValues> of_units = values_of_units(graph);
  for (std::size_t unit = 0; unit < of_units.size(); ++unit) {
    if (outline.spare_boundary == Boundary::keep) kept += of_units[unit].boundary;
    if (spare_of(graph.units[unit], outline) == Saved::keep) kept += of_units[unit].saved;
  }
  return kept * outline.group;
}

Bytes Filling::reserved_bytes(const Outline& outline) const {
  if (!whole_) return 0;
  return kept_bytes(*whole_, outline) - kept_bytes(*graphs_.tiled, outline);
}

double Filling::share_of_whole() const {
  if (!whole_) return 1;
  return static_cast<double>(graphs_.tiled->units.size()) / static_cast<double>(whole_->units.size());
}

std::optional<Choices> Filling::fill(const Outline& outline, const Filled* alike) {
  // A model that the host has room for needs no drive.
  for (const Tier spare : spare_tiers()) {
    if (fill_from(outline, spare, alike)) return fitting_;
  }
  return std::nullopt;
}

// An item takes less of the device than its bytes where it is no longer staged, and only a plan can tell how well the rest packs:
// each plan's room left or lacking corrects the bytes that are dealt out.
bool Filling::fill_from(const Outline& outline, Tier spare, const Filled* alike) {
  Choices bare = start(outline, spare);
  limits_ = request_.budgets;
  limits_[Tier::device] -= reserved_bytes(outline);
  if (spare != Tier::device && in_memory(spare))
    limits_[spare] = static_cast<Bytes>(share_of_whole() * static_cast<double>(request_.budgets[spare]));
  if (limits_[Tier::device] < 0 || (spare != spare_tier() && is_beyond(spare, bare))) return false;
  if (const Bytes lacking = state_on(spare, bare) + others_on(spare, bare) - limits_[spare]; lacking > 0)
    relieve(bare, spare, lacking + request_.budgets[spare] / kRoomNotWorthAPlan);
  Dealing dealing{.tier = Tier::device,
                  .bare = bare,
                  .items = items_of_device(graph_of(graphs_, bare), request_, outline, bare),
                  .budget = limits_[Tier::device],
                  .not_worth_a_plan = request_.budgets[Tier::device] / kRoomNotWorthAPlan,
                  .built_before = operations_built_};
  filled_.ahead = outline.ahead;
  const Bytes bare_of_alike = alike == nullptr ? 0 : alike->bare + staged_with(outline.ahead) - staged_with(alike->ahead);
  Bytes dealt = 0;
  if (alike != nullptr && !whole_ && bare_of_alike < dealing.budget) {
    filled_.bare = bare_of_alike;
    dealt = static_cast<Bytes>(alike->worth * static_cast<double>(dealing.budget - bare_of_alike));
  } else {
    if (!try_bare(dealing)) {
      // A tier below may lack room only because nothing rests on the device yet.
      if (room_[Tier::device] <= 0 || is_beyond(spare, bare)) return false;
      filled_.bare = dealing.budget - room_[Tier::device];
      dealing.lacks = {};
      dealt = room_[Tier::device];
    } else {
      dealt = alike == nullptr ? dealing.fits.room : static_cast<Bytes>(alike->worth * static_cast<double>(dealing.fits.room));
    }
  }
  dealing.room = limits_[Tier::device] - filled_.bare;
  if (!deal(dealing, dealt)) return false;
  const Bytes room = limits_[Tier::device] - filled_.bare;
  filled_.bare += reserved_bytes(outline);
  filled_.worth = room > 0 ? static_cast<double>(dealing.fits.dealt) / static_cast<double>(room) : 1;
  for (const Tier tier : tiers_of(request_.chain)) {
    if (tier != Tier::device && depth_of(request_.chain, tier) < depth_of(request_.chain, spare)) fill_between(tier);
  }
  return true;
}

void Filling::fill_between(Tier tier) {
  const Bytes budget = request_.budgets[tier];
  Dealing dealing{.tier = tier,
                  .bare = fitting_,
                  .items = items_of(tier, graph_of(graphs_, fitting_), request_, fitting_),
                  .budget = budget,
                  .not_worth_a_plan = budget / kRoomNotWorthAPlan,
                  .built_before = operations_built_};
  Bytes& limit = limits_[tier];
  const Bytes bare = peak_of(fitting_)[tier];
  limit = bare + static_cast<Bytes>(share_of_whole() * static_cast<double>(budget - bare));
  dealing.room = limit - bare;
  dealing.fits = {0, dealing.room, std::vector<int>(dealing.items.size(), 0)};
  deal(dealing, dealing.fits.room);
}

bool Filling::try_counts(Dealing& dealing, Bytes dealt, std::vector<int> counts) {
  Choices trial = dealing.bare;
  for (std::size_t kind = 0; kind < counts.size(); ++kind) dealing.items[kind].raise_first(trial, counts[kind]);
  ++dealing.plans;
  const bool fitted = accept(trial);
  (fitted ? dealing.fits : dealing.lacks) = Point{dealt, room_[dealing.tier], std::move(counts)};
  return fitted;
}

bool Filling::try_bare(Dealing& dealing) {
  if (!try_counts(dealing, 0, std::vector<int>(dealing.items.size(), 0))) return false;
  filled_.bare = dealing.budget - dealing.fits.room;
  limits_[dealing.tier] = filled_.bare + static_cast<Bytes>(share_of_whole() * static_cast<double>(dealing.fits.room));
  dealing.fits.room = limits_[dealing.tier] - filled_.bare;
  return true;
}

// Looks between the most that is known to fit and the least that is known not to fit: at the point that the room which the one
// leaves and the other lacks suggest, or halfway after two guesses that did not fit. Plans of large models are dear: halves alone
// leave a tier of a 70 B model so empty that a step takes ten times as long.
bool Filling::deal(Dealing& dealing, Bytes dealt) {
  Point &fits = dealing.fits, &lacks = dealing.lacks;
  const int most_plans = whole_ ? kPlansOfASample : kPlansOfAFilling;
  int lacked = 0;  // guesses in a row that did not fit
  while (dealing.plans < most_plans && operations_built_ - dealing.built_before < kOperationsOfAFilling) {
    std::vector<int> counts = most_within(dealing.items, dealt);
    if (counts == fits.counts) break;
    if (counts == lacks.counts) {
      lacks.dealt = dealt;
      ++lacked;
    } else if (!try_counts(dealing, dealt, std::move(counts))) {
      ++lacked;
    } else if (lacked = 0; fits.room <= dealing.not_worth_a_plan) {
      break;
    }
    if (fits.dealt >= 0) {
      if (lacks.dealt < 0) {
        const double taken =
            fits.dealt == 0
                ? 1
                : std::clamp(static_cast<double>(dealing.room - fits.room) / static_cast<double>(fits.dealt), kLeastTaken, 1.0);
        dealt = fits.dealt + static_cast<Bytes>(std::max(1.0, kSurely / taken) * static_cast<double>(fits.room));
      } else {
        const double share = static_cast<double>(fits.room) / static_cast<double>(fits.room - std::min<Bytes>(0, lacks.room));
        const auto between = static_cast<double>(lacks.dealt - fits.dealt);
        dealt = fits.dealt + static_cast<Bytes>((lacked > 1 ? 0.5 : std::min(share, kNearest)) * between);
      }
      if (dealt - fits.dealt <= dealing.not_worth_a_plan) break;
    } else if (lacks.room >= 0) {
      return false;  // a tier below lacks room, and with less here it would lack more
    } else if (dealt = lacks.dealt + lacks.room - dealing.not_worth_a_plan; dealt <= 0) {
      return try_bare(dealing);
    }
  }
  return fits.dealt >= 0 || (lacks.room < 0 && try_bare(dealing));
}

Bytes Filling::least_device(const Outline& outline) { return build(start(outline, spare_tier())).peak[Tier::device]; }

}  // namespace spillway
