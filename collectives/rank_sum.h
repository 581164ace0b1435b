// Adds the same elements of several ranks in fp32 along one binary tree over the ranks: of n ranks the first half of it are as
// many as the largest power of two below n. So groups of ranks that follow each other, a power of two each, may add first among
// themselves and then their sums, with the same bits.
// Not here: how the elements come together (communicator.h).
#pragma once

#include <cstdint>
#include <span>

#include "memory/base/parallel.h"

namespace spillway {

// out[i] = sum of all of[rank][i], for i in [0, elements). `out` may be one of them. At most kMostRanks.
inline constexpr std::size_t kMostRanks = 1 << 16;
void sum_over_ranks(std::span<const float* const> of, std::int64_t elements, float* out, const ThreadPool& pool);

}  // namespace spillway
