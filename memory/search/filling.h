// Turns the outline of a plan into its choices: whatever the outline leaves open rests on the device as far as the budgets allow.
// Not here: which outlines there are and which is fastest (planner.h), how a plan is built (schedule.h, packing.h).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "memory/plan/plan.h"
#include "memory/search/items.h"
#include "memory/search/outline.h"
#include "memory/search/plan_request.h"

namespace spillway {

// The tier that a plan which did not fit exceeded by the most bytes.
struct Lack {
  Tier tier = Tier::device;
  Bytes needed = 0, budget = 0;
};

// Estimated bytes of the device that reading ahead takes: what is read, and half as much kept for what is still written
// (passes/reach.h).
constexpr Bytes staged_with(Bytes ahead) { return ahead + ahead / 2; }
// Bytes to read ahead so that staging takes `staged` bytes less.
constexpr Bytes ahead_without(Bytes ahead, Bytes staged) { return ahead - staged * 2 / 3; }

class Filling {
 public:
  // Keeps references: all must outlive it. `whole`: the model that graphs of fewer layers, a sample, stand for. A sample deals
  // out its share of the whole's room, by number of units, and leaves free what the whole keeps beyond it between forward and
  // backward.
  Filling(const GraphCandidates& graphs, const PlanRequest& request, const UnitGraph* whole = nullptr)
      : graphs_(graphs), request_(request), whole_(whole) {}

  // These return nothing where the outline does not fit. in_core(): all rests on the device. fill(): as much as fits there.
  std::optional<Choices> in_core(const Outline& outline);
  std::optional<Choices> fill(const Outline& outline, const Filled* alike = nullptr);
  // Each block and unit rests where it does in another plan.
  std::optional<Choices> as_in(const Outline& outline, const Like& like);
  const Filled& filled() const { return filled_; }                           // of the last filling that fitted
  Bytes lacked() const { return std::max<Bytes>(0, -room_[Tier::device]); }  // device bytes that the plan tried last lacked
  // Bytes of the device that the outline needs with nothing resting there that need not.
  Bytes least_device(const Outline& outline);

  // The plan of the choices, packed, with waits, whether it fits or not. The reference is valid until another plan is asked for.
  // The plan built last is not built again.
  const Plan& plan_of(const Choices& choices);
  Plan take_plan_of(const Choices& choices);
  void drop_plan() { last_ = {}; }

  // The lack of the plan that came nearest to fitting, among those that did not.
  const std::optional<Lack>& least_lack() const { return least_lack_; }
  int plans_built() const { return plans_built_; }
  // Operations in all plans built: the cost of the search.
  std::size_t operations_built() const { return operations_built_; }

 private:
  // The tiers for whatever has no better place: those below the device that have a budget, nearest first; else the device.
  std::vector<Tier> spare_tiers() const;
  Tier spare_tier() const { return spare_tiers().back(); }
  Choices start(const Outline& outline, Tier spare) const;
  // Estimated bytes that rest on a tier; only a plan gives them exactly. Others: gradients and spilled values.
  Bytes state_on(Tier tier, const Choices& choices) const;
  Bytes others_on(Tier tier, const Choices& choices) const;
  bool is_beyond(Tier spare, const Choices& bare) const;
  // Moves the `lacking` bytes that the spare tier has no room for to the tiers between it and the device.
  void relieve(Choices& choices, Tier spare, Bytes lacking) const;
  Plan build(const Choices& choices);
  const Plan* plan_at_hand(const Choices& choices) const;
  void build_last(const Choices& choices);
  // Remembers the peaks of all choices: fillings in another order, or of outlines that differ only in what is not used, reach
  // choices whose plan was built before.
  By<Tier, Bytes> peak_of(const Choices& choices);
  // True when the plan of the choices fits in limits_; then they become `fitting_`.
  bool accept(const Choices& choices);
  // One attempt: the bytes of a tier's room that are dealt out to items, the room that its plan leaves (below 0: lacks), and how
  // many items of each kind that is.
  struct Point {
    Bytes dealt = -1, room = 0;
    std::vector<int> counts;
  };
  struct Dealing {
    Tier tier;
    Choices bare;  // only what must rests on the tier
    std::vector<Items> items;
    Bytes budget;
    Bytes room = 0;               // that the bare choices leave on the tier
    Bytes not_worth_a_plan;       // no further plan is built to use up room of at most so many bytes
    Point fits = {}, lacks = {};  // the most that is known to fit, the least that is known not to fit
    int plans = 0;
    std::size_t built_before = 0;
  };
  bool fill_from(const Outline& outline, Tier spare, const Filled* alike);
  // Moves what rests below a tier onto it, as far as it has room: a tier between the device and the spare one.
  void fill_between(Tier tier);
  bool try_counts(Dealing& dealing, Bytes dealt, std::vector<int> counts);
  bool try_bare(Dealing& dealing);
  // Finds the most that fits, beginning with `dealt` bytes; the best choices found become `fitting_`. False where nothing fits.
  bool deal(Dealing& dealing, Bytes dealt);
  // Bytes of a group's values that the outline keeps on the device until their backward.
  Bytes kept_bytes(const UnitGraph& graph, const Outline& outline) const;
  // Bytes of such values that the whole model has beyond the sample; 0 where there is no sample.
  Bytes reserved_bytes(const Outline& outline) const;
  double share_of_whole() const;  // units of the sample a unit of the whole model; 1 where there is no sample

  const GraphCandidates& graphs_;
  const PlanRequest& request_;
  const UnitGraph* const whole_;
  Plan last_;  // the plan built last, unless it was given away
  bool last_has_waits_ = false;
  std::vector<std::pair<Choices, By<Tier, Bytes>>> peaks_;
  Choices fitting_;
  Filled filled_;
  By<Tier, Bytes> limits_;
  By<Tier, Bytes> room_;  // bytes that the plan tried last leaves of limits_; below 0: lacks
  std::optional<Lack> least_lack_;
  Bytes least_total_ = 0;  // bytes that the plan of least_lack_ lacked over all tiers
  int plans_built_ = 0;
  std::size_t operations_built_ = 0;
};

}  // namespace spillway
