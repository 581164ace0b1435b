// Every combination of choices that changes the look of a schedule of one rank, on toy graphs.
// Not here: ranks (sharding_test.cpp).
#pragma once

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "tests/memory/toy_graph.h"

namespace spillway {

inline std::string name_of_case(const Choices& c, bool tied, bool fused) {
  return fmt::format("{} {} saved {} boundary {} form {} micro-batches {} ahead {} slots {} tied {} fused {} deferred {}",
                     order_words(c), name_of(c.update), name_of(c.units[0].saved), static_cast<int>(c.units[0].boundary),
                     static_cast<int>(c.form), c.micro_batches, c.ahead, c.slots, tied, fused,
                     count_of(c.blocks, &BlockPlace::deferred, Deferred::yes));
}

// Blocks that are looked up are not deferred.
inline void defer_every_other_block(const UnitGraph& graph, Choices& choices) {
  for (std::size_t block = 0; block < graph.blocks.size(); block += 2)
    choices.blocks[block].deferred = graph.blocks[block].looked_up ? Deferred::no : Deferred::yes;
}

template <typename Visit>
void for_every_choice(Visit&& visit, int layers = 4) {
  for (const bool tied : {false, true}) {
    for (const bool fused : {false, true}) {
      const UnitGraph graph = toy_graph({.layers = layers, .tied = tied, .fused = fused});
      for (const Tier tier : {Tier::device, Tier::nvme}) {
        for (const Order order : {Order::horizontal, Order::vertical}) {
          for (const UpdateTime update : {UpdateTime::after, UpdateTime::in_backward, UpdateTime::in_next_forward}) {
            for (const Saved saved : {Saved::keep, Saved::recompute, Saved::spill}) {
              for (const int micro_batches : {1, 3}) {
                for (const Bytes ahead : {0 * kKiB, 256 * kKiB, 2 * kMiB}) {
                  Choices choices = toy_choices(graph, tier);
                  choices.update = update;
                  choices.micro_batches = micro_batches;
                  set_order(choices, order);
                  choices.ahead = ahead;
                  choices.slots = ahead == 256 * kKiB ? 2 : 1;
                  choices.durable_every = 1;
                  choices.form = ahead == 2 * kMiB ? StateForm::compact : StateForm::exact;
                  choices.update_chunk = 48 * 1024;
                  set_all(choices.units, &UnitPlace::saved, saved);
                  if (saved == Saved::spill || micro_batches == 3)
                    set_all(choices.units, &UnitPlace::boundary, tier == Tier::nvme ? Boundary::spill : Boundary::keep);
                  if (tier == Tier::device && saved == Saved::spill) continue;
                  choices.clip = update != UpdateTime::in_backward;
                  for (const bool defers : {false, true}) {
                    if (defers && !may_defer_blocks(update, choices.clip, choices.slots)) continue;
                    if (defers) defer_every_other_block(graph, choices);
                    SCOPED_TRACE(name_of_case(choices, tied, fused));
                    visit(graph, choices);
                  }
                }
              }
            }
          }
        }
      }
    }
  }
}

}  // namespace spillway
