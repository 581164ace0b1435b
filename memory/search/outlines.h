// The outlines of plans to choose from, for a model, a machine and what the user fixed.
// Not here: which of them is best (planner.h), a plan from an outline (filling.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "memory/plan/machine.h"
#include "memory/search/outline.h"
#include "memory/search/plan_request.h"

namespace spillway {

// tight: nothing is read ahead, and updates come in the smallest pieces.
enum class Pace : std::uint8_t { ahead, tight };

class Outlines {
 public:
  // All must outlive this.
  Outlines(const GraphCandidates& graphs, const MachineProfile& machine, const PlanRequest& request)
      : graphs_(graphs), machine_(machine), request_(request) {}

  // The reason why a forced combination is impossible or cannot be exact; empty where there is none.
  std::string refusal() const;
  std::vector<Outline> all(Pace pace = Pace::ahead) const;
  // The outline of an alike request, changed to what this request fixes.
  Outline as_asked(Outline outline) const;

  // The treatment of values that do not stay on the device.
  struct Spare {
    Saved saved;
    Boundary boundary;
  };
  Spare first_spare() const { return spares().front(); }
  // True when there is a tier below the device.
  bool has_below() const { return has_disk() || has_memory_below(request_.chain); }
  bool spills_all() const { return tier_of(request_.activations).value_or(Tier::device) != Tier::device; }
  bool forced_off_device() const {
    return spills_all() || request_.parameter_tier.value_or(Tier::device) != Tier::device ||
           request_.optimizer_tier.value_or(Tier::device) != Tier::device;
  }
  bool may_defer(UpdateTime update) const { return has_below() && may_defer_blocks(update, request_.clip, slots()); }
  // Elements that one update takes. The pieces in flight then take an eighth of the tier that they are updated on, or up to a
  // quarter while there would be more than 2^13 pieces: larger pieces would crowd out what the backward needs, smaller ones only
  // make more operations.
  std::int64_t chunk(Tier tier) const;
  // The most bytes of the device to read ahead.
  Bytes farthest_ahead() const;
  // Slots of state on NVMe, unless the request says: two where there seems to be room for all state twice, else one.
  int slots() const;

 private:
  bool has_disk() const { return request_.budgets[Tier::nvme] > 0; }
  bool forced_to(Tier tier) const {
    return request_.parameter_tier == tier || request_.optimizer_tier == tier || tier_of(request_.activations) == tier;
  }
  bool may_take_back() const {
    return has_disk() && !has_memory_below(request_.chain) && slots() == 2 && request_.parameter_tier != Tier::device &&
           request_.optimizer_tier != Tier::device;
  }
  std::vector<Spare> spares() const;
  Saved spare_pieces() const;
  std::vector<int> groups() const;
  int most_strips() const;
  std::vector<UpdateTime> updates() const;
  std::vector<Tier> update_tiers() const;
  void add(std::vector<Outline>& outlines, const Outline& outline, Pace pace) const;
  bool has_room_for_lookups() const;
  std::int64_t least_chunk() const;
  Bytes first_ahead() const;

  const GraphCandidates& graphs_;
  const MachineProfile& machine_;
  const PlanRequest& request_;
};

}  // namespace spillway
