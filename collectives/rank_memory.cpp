#include "collectives/rank_memory.h"

#include <cstring>

#include "collectives/rank_sum.h"

namespace spillway {

void HostRankMemory::copy(std::byte* target, const std::byte* source, Bytes bytes) {
  std::memcpy(target, source, static_cast<std::size_t>(bytes));
}

void HostRankMemory::sum(std::span<const float* const> of, std::int64_t elements, float* out) {
  sum_over_ranks(of, elements, out, pool_);
}

}  // namespace spillway
