// How ranks divide a model that they train together: the ZeRO stages as the parts of arrays that a rank holds, and the bytes that
// collectives move for them. A plan is the same for all ranks: its buffers have room for the longest part, and who binds the plan
// for a rank finds the rank's own part.
// Not here: when collectives move them (passes/network_tasks.h), how ranks talk (collectives/communicator.h).
//
// Legend: R ranks, N of them share one copy of the sharded arrays, C = R / N copies, P parameters of a block.
#pragma once

#include <algorithm>
#include <cstdint>

#include "memory/base/types.h"
#include "memory/plan/unit.h"

namespace spillway {

// Stage 0 shards nothing, 1 and 2 the optimizer's state and the gradients that wait for it, 3 weights too. Ranks reduce once a
// step, after their own sum over micro-batches, so stage 1 has no use for the rest of a sum either: 1 and 2 are one plan.
struct Sharding {
  int ranks = 1;  // R
  int group = 1;  // N: ranks that follow each other, a power of two that divides R, or R (hybrid sharding)
  int stage = 0;

  constexpr bool shards_optimizer() const { return stage >= 1 && group > 1; }
  constexpr bool shards_weights() const { return stage >= 3 && group > 1; }
  constexpr int copies() const { return ranks / group; }  // C
  bool operator==(const Sharding&) const = default;
};

// Elements of the longest part of a block: whole extents at two bytes an element or more.
constexpr std::int64_t shard_elements(std::int64_t elements, int parts) {
  return round_up((elements + parts - 1) / parts, kBlockElements);
}
constexpr std::int64_t shard_elements(std::int64_t elements, const Sharding& sharding) {
  return shard_elements(elements, sharding.group);
}

// A range of a block's elements. All parts are of shard_elements(), but the last ones, which end with the block and may be empty.
struct Shard {
  std::int64_t begin = 0, elements = 0;
  constexpr std::int64_t end() const { return begin + elements; }
  bool operator==(const Shard&) const = default;
};
// The part with this index, of so many parts.
constexpr Shard part_of(std::int64_t elements, int parts, int index) {
  const std::int64_t each = shard_elements(elements, parts), begin = std::min(index * each, elements);
  return {begin, std::min(begin + each, elements) - begin};
}
// A rank's part of arrays that are sharded.
constexpr Shard part_of(std::int64_t elements, const Sharding& sharding, int rank) {
  return part_of(elements, sharding.group, rank % sharding.group);
}

// True when an update finds its part in the whole weight. Its operand is then the whole, as each rank's part lies elsewhere.
constexpr bool updates_part_of_weight(const Sharding& sharding) {
  return sharding.shards_optimizer() && !sharding.shards_weights();
}

// Bytes that a rank sends, and as many that it receives, on average over ranks, when `ranks` gather an array from their parts, or
// reduce one to parts. Reducing an array and keeping all of it on every rank takes both.
constexpr Bytes bytes_of_collective(Bytes array, int ranks) { return array * (ranks - 1) / ranks; }

// The same for summing fp32 gradients of a block: to a rank's part within each copy, then over copies; or all of it on every
// rank.
constexpr Bytes bytes_of_sum(std::int64_t elements, const Sharding& sharding) {
  if (!sharding.shards_optimizer()) return 2 * bytes_of_collective(elements * 4, sharding.ranks);
  return bytes_of_collective(elements * 4, sharding.group) +
         2 * bytes_of_collective(elements * 4, sharding.copies()) / sharding.group;
}

// A sum takes the others' elements in rounds of at most so many from each.
inline constexpr std::int64_t kSumRound = 1 << 20;
// Bytes of the room in which a rank receives them.
constexpr Bytes staging_of_sum(std::int64_t elements, const Sharding& sharding) {
  const auto room = [](std::int64_t all, int parts) { return (parts - 1) * std::min(shard_elements(all, parts), kSumRound) * 4; };
  if (!sharding.shards_optimizer()) return room(elements, sharding.ranks);
  return std::max(room(elements, sharding.group), room(shard_elements(elements, sharding), sharding.copies()));
}
// Bytes of memory that a rank reads and writes while it adds.
constexpr double memory_of_sum(std::int64_t elements, const Sharding& sharding) {
  const auto sum = [](double all, int parts) { return parts == 1 ? 0 : 4 * all / parts * (parts + 1); };
  const auto all = static_cast<double>(elements);
  if (!sharding.shards_optimizer()) return sum(all, sharding.ranks);
  return sum(all, sharding.group) + sum(all / sharding.group, sharding.copies());
}

}  // namespace spillway
