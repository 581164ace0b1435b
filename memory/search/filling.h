// From the outline of a plan to its choices: what the outline leaves open rests on the device as far as the budgets allow.
// Not here: which outlines there are and which is fastest (planner.h), how a plan is built (schedule.h, packing.h).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "memory/plan.h"
#include "memory/search/items.h"
#include "memory/search/outline.h"
#include "memory/search/plan_request.h"

namespace spillway {

// What a plan that did not fit lacked most.
struct Lack {
  Tier tier = Tier::device;
  Bytes needed = 0, budget = 0;
};

// What of the device reading ahead takes, about: what is read, and what is kept for what is written (passes/reach.h).
constexpr Bytes staged_with(Bytes ahead) { return ahead + ahead / 2; }
// How much to read ahead so that it takes `staged` less.
constexpr Bytes ahead_without(Bytes ahead, Bytes staged) { return ahead - staged * 2 / 3; }

class Filling {
 public:
  // All are kept and must outlive it. `whole`: where graphs of fewer layers stand for it, as many of its items are dealt out as
  // they have, and what it keeps more of between forward and backward is left free.
  Filling(const GraphCandidates& graphs, const PlanRequest& request, const UnitGraph* whole = nullptr)
      : graphs_(graphs), request_(request), whole_(whole) {}

  // Nothing where the outline does not fit. With all on the device, or with as much of it as fits.
  std::optional<Choices> in_core(const Outline& outline);
  std::optional<Choices> fill(const Outline& outline, const Filled* alike = nullptr);
  // The same rests on each tier as in another plan.
  std::optional<Choices> as_in(const Outline& outline, const Like& like);
  const Filled& filled() const { return filled_; }                           // of the last that fitted
  Bytes lacked() const { return std::max<Bytes>(0, -room_[Tier::device]); }  // of the device, by the plan weighed last
  // Bytes of the device that the outline needs with nothing resting there that need not.
  Bytes least_device(const Outline& outline);

  // Packed, with waits, whether it fits or not; there until another is asked for. The plan built last is not built again.
  const Plan& plan_of(const Choices& choices);
  Plan take_plan_of(const Choices& choices);
  void drop_plan() { last_ = {}; }

  // Of the plans that did not fit, what the nearest lacked.
  const std::optional<Lack>& least_lack() const { return least_lack_; }
  int plans_built() const { return plans_built_; }
  // In all plans built: what the search has cost.
  std::size_t operations_built() const { return operations_built_; }

 private:
  // Where what has no better place may rest: the tiers below the device that there is room on, nearest first; else the device.
  std::vector<Tier> spare_tiers() const;
  Tier spare_tier() const { return spare_tiers().back(); }
  Choices start(const Outline& outline, Tier spare) const;
  // What rests on a tier, about: a plan says it to the byte. Others: gradients and what is spilled.
  Bytes state_on(Tier tier, const Choices& choices) const;
  Bytes others_on(Tier tier, const Choices& choices) const;
  bool is_beyond(Tier spare, const Choices& bare) const;
  // What the tier lacks room for comes to rest on those between it and the device.
  void relieve(Choices& choices, Tier spare, Bytes lacking) const;
  Plan build(const Choices& choices);
  const Plan* plan_at_hand(const Choices& choices) const;
  void build_last(const Choices& choices);
  // Fillings in another order, or of outlines that differ in what is not used, come to choices whose plan was built before.
  By<Tier, Bytes> peak_of(const Choices& choices);
  // Whether the plan of the choices fits in limits_; then they are `fitting_`.
  bool accept(const Choices& choices);
  // How much of a tier's room is dealt out to items, and with which of them.
  struct Point {
    Bytes dealt = -1, room = 0;
    std::vector<int> counts;
  };
  struct Dealing {
    Tier tier;
    Choices bare;  // with nothing resting on the tier that need not
    std::vector<Items> items;
    Bytes budget;
    Bytes not_worth_a_plan;       // room that is left
    Point fits = {}, lacks = {};  // the most that is known to fit, the least that is known not to
    int plans = 0;
    std::size_t built_before = 0;
  };
  bool fill_from(const Outline& outline, Tier spare, const Filled* alike);
  // What rests below, on such a tier.
  void fill_between(Tier tier);
  bool try_counts(Dealing& dealing, Bytes dealt, std::vector<int> counts);
  bool try_bare(Dealing& dealing);
  // The best that is found from so much on; it is `fitting_`.
  bool deal(Dealing& dealing, Bytes dealt);
  // Of a unit's values, those that the outline keeps until its backward, in all of a group.
  Bytes kept_bytes(const UnitGraph& graph, const Outline& outline) const;
  // Of the device, what the whole takes beyond the sample.
  Bytes reserved_bytes(const Outline& outline) const;
  double share_of_whole() const;

  const GraphCandidates& graphs_;
  const PlanRequest& request_;
  const UnitGraph* const whole_;
  Plan last_;  // that was built, unless it was given away
  bool last_has_waits_ = false;
  std::vector<std::pair<Choices, By<Tier, Bytes>>> peaks_;
  Choices fitting_;
  Filled filled_;
  By<Tier, Bytes> limits_;
  By<Tier, Bytes> room_;  // that the plan weighed last leaves of them; below 0: lacks
  std::optional<Lack> least_lack_;
  Bytes least_total_ = 0;  // over all tiers
  int plans_built_ = 0;
  std::size_t operations_built_ = 0;
};

}  // namespace spillway
