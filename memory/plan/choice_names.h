// The choices of a plan that have a few values each, and the names of these values.
// Not here: what a plan took (plan.h), what somebody fixed (search/plan_request.h).
#pragma once

#include <algorithm>
#include <cstdint>

#include "memory/base/names.h"
#include "memory/base/types.h"

namespace spillway {

enum class UpdateTime : std::uint8_t { after, in_backward, in_next_forward };
template <>
struct Names<UpdateTime> {
  static constexpr Named<UpdateTime> all[] = {
      {"after", UpdateTime::after}, {"in-backward", UpdateTime::in_backward}, {"in-next-forward", UpdateTime::in_next_forward}};
};

// A unit's saved values between its forward and its backward.
enum class Saved : std::uint8_t { keep, recompute, spill };
template <>
struct Names<Saved> {
  static constexpr Named<Saved> all[] = {{"keep", Saved::keep}, {"recompute", Saved::recompute}, {"spill", Saved::spill}};
};

// Values that pass from unit to unit, between forward and backward.
enum class Boundary : std::uint8_t { keep, spill };
enum class Deferred : std::uint8_t { no, yes };

// How a block's state is stored (block_state.h). fp32: with --dtype fp32, the weight is its own master. fp16: with --dtype fp16,
// the weight has an fp32 master beside it.
enum class StateForm : std::uint8_t { exact, compact, fp32, fp16 };
template <>
struct Names<StateForm> {
  static constexpr Named<StateForm> all[] = {
      {"exact", StateForm::exact}, {"compact", StateForm::compact}, {"fp32", StateForm::fp32}, {"fp16", StateForm::fp16}};
};

// A user may fix the treatment of activations (tiers have their usual names), and which state a kill goes back to.
enum class SavedRequest : std::uint8_t { automatic, device, recompute, host, nvme };
template <>
struct Names<SavedRequest> {
  static constexpr Named<SavedRequest> all[] = {{"auto", SavedRequest::automatic},
                                                {"device", SavedRequest::device},
                                                {"recompute", SavedRequest::recompute},
                                                {"host", SavedRequest::host},
                                                {"nvme", SavedRequest::nvme}};
};
static_assert(std::ranges::all_of(kAll<Tier>, [](Tier tier) { return value_of<SavedRequest>(name_of(tier)).has_value(); }),
              "a tier that activations cannot be asked to rest on");
enum class Durability : std::uint8_t { automatic, step, checkpoint };
template <>
struct Names<Durability> {  // automatic has no name: it applies where nobody fixed anything
  static constexpr Named<Durability> all[] = {{"step", Durability::step}, {"checkpoint", Durability::checkpoint}};
};

}  // namespace spillway
