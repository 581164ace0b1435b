// Draws choices at random: one of some values, the orders of a step, and places on three tiers.
#pragma once

#include <array>
#include <cstdint>
#include <random>

#include "memory/plan/plan.h"
#include "tests/memory/every_choice.h"
#include "tests/memory/toy_graph.h"

namespace spillway {

class Draw {
 public:
  explicit Draw(std::uint64_t seed) : random_(seed) {}

  template <typename T, typename... More>
  T any(T first, More... more) {
    const std::array values{first, static_cast<T>(more)...};
    return values[random_() % values.size()];
  }
  int up_to(int most) { return 1 + static_cast<int>(random_() % static_cast<unsigned>(most)); }

  // Draws when updates come, and how micro-batches go through the units.
  void order(Choices& choices) {
    choices.update = any(UpdateTime::after, UpdateTime::in_backward, UpdateTime::in_next_forward);
    choices.clip = choices.update != UpdateTime::in_backward;
    choices.micro_batches = any(1, 2, 3, 4, 6);
    choices.group = any(1, 2, choices.micro_batches);
    if (choices.micro_batches % choices.group != 0) choices.group = 1;
    choices.strip = up_to(choices.group);
  }

 private:
  std::mt19937_64 random_;
};

// Random choices: each block and each unit rests on a tier of its own.
inline Choices any_choices(const UnitGraph& graph, std::uint64_t seed) {
  Draw draw(seed);
  const auto any = [&](auto... of) { return draw.any(of...); };
  Choices choices = toy_choices(graph, Tier::nvme);
  choices.chain = Chain::device_host_nvme;
  choices.update_tier = any(Tier::host, Tier::device);
  draw.order(choices);
  choices.ahead = any(0 * kKiB, 64 * kKiB, 256 * kKiB, kMiB);
  choices.slots = any(1, 2);
  choices.form = any(StateForm::exact, StateForm::compact, StateForm::fp32, StateForm::fp16);
  choices.update_chunk = 1 << 20;  // updates take whole blocks: in pieces they would be other operations
  for (const auto array : {&BlockPlace::weight, &BlockPlace::optimizer, &BlockPlace::gradient}) {
    for (BlockPlace& place : choices.blocks) place.*array = any(Tier::device, Tier::host, Tier::nvme);
  }
  for (UnitPlace& place : choices.units) {
    place.saved = any(Saved::keep, Saved::recompute, Saved::spill);
    place.boundary = any(Boundary::keep, Boundary::spill);
    place.spill = any(Tier::host, Tier::nvme);
  }
  if (may_defer_blocks(choices.update, choices.clip, choices.slots) && any(false, true)) defer_every_other_block(graph, choices);
  return choices;
}

// The same arithmetic with everything on the device.
inline Choices in_core(const Choices& choices) {
  Choices same = choices;
  same.chain = Chain::device_nvme;
  same.update_tier = Tier::device;
  for (const auto array : {&BlockPlace::weight, &BlockPlace::optimizer, &BlockPlace::gradient})
    set_all(same.blocks, array, Tier::device);
  for (UnitPlace& place : same.units)
    place = {place.saved == Saved::spill ? Saved::keep : place.saved, Boundary::keep, Tier::nvme};
  same.slots = 1;
  return same;
}

}  // namespace spillway
