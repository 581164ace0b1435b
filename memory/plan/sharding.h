// How ranks divide a model that they train together: the ZeRO stages as sizes of the parts that a rank holds, and the bytes that
// collectives move for them. Not here: when they move them (task_list.h), how ranks talk.
//
// Legend: R ranks, N of them share one copy of the sharded arrays, P parameters of a block.
#pragma once

#include <cstdint>

#include "memory/base/types.h"
#include "memory/plan/unit.h"

namespace spillway {

// Stage 0 shards nothing, 1 the optimizer's state, 2 gradients too, 3 weights too.
struct Sharding {
  int ranks = 1;  // R
  int group = 1;  // N, a divisor of R: each group has a whole copy (hybrid sharding)
  int stage = 0;

  bool shards_optimizer() const { return stage >= 1 && group > 1; }
  bool shards_gradients() const { return stage >= 2 && group > 1; }
  bool shards_weights() const { return stage >= 3 && group > 1; }
  bool operator==(const Sharding&) const = default;
};

// Elements of a rank's part of a block: all parts have the same length, whole extents at two bytes an element or more.
constexpr std::int64_t shard_elements(std::int64_t elements, const Sharding& sharding) {
  return round_up((elements + sharding.group - 1) / sharding.group, kBlockElements);
}

// Bytes that enter a rank, and as many leave it, when `ranks` gather an array from their parts, or reduce one to parts. Reducing
// an array and keeping all of it on every rank takes both.
constexpr Bytes bytes_of_collective(Bytes array, int ranks) { return array / ranks * (ranks - 1); }

// The same for summing fp32 gradients of a block: to a rank's part within each copy, then over copies; or all of it on every
// rank.
inline Bytes bytes_of_sum(std::int64_t elements, const Sharding& sharding) {
  if (!sharding.shards_optimizer()) return 2 * bytes_of_collective(elements * 4, sharding.ranks);
  return bytes_of_collective(elements * 4, sharding.group) +
         2 * bytes_of_collective(shard_elements(elements, sharding) * 4, sharding.ranks / sharding.group);
}

}  // namespace spillway
