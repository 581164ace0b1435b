#include "collectives/rank_sum.h"

#include <algorithm>
#include <array>
#include <bit>

#include "memory/base/error.h"

namespace spillway {
namespace {

constexpr std::int64_t kTask = 64 << 10;    // elements that one thread adds at a time
constexpr std::int64_t kStretch = 1 << 10;  // elements whose sums of halves stay in the first cache
constexpr std::size_t kLevels = 17;         // of a tree of kMostRanks

using Stretch = std::array<float, kStretch>;

void add(const float* a, const float* b, std::int64_t elements, float* out) {
  for (std::int64_t i = 0; i < elements; ++i) out[i] = a[i] + b[i];
}

// The address of the sum of elements [at, at + elements) of these ranks: of one rank, its own; else `room`.
const float* sum(std::span<const float* const> of, std::int64_t at, std::int64_t elements, float* room, Stretch* levels) {
  if (of.size() == 1) return of.front() + at;
  const std::size_t half = std::bit_floor(of.size() - 1);
  const float* const left = sum(of.first(half), at, elements, levels[0].data(), levels + 2);
  const float* const right = sum(of.subspan(half), at, elements, levels[1].data(), levels + 2);
  add(left, right, elements, room);
  return room;
}

}  // namespace

void sum_over_ranks(std::span<const float* const> of, std::int64_t elements, float* out, const ThreadPool& pool) {
  SPILLWAY_CHECK(!of.empty() && of.size() <= kMostRanks, "a sum over {} ranks", of.size());
  pool.parallel_for((elements + kTask - 1) / kTask, [&](std::int64_t task, int) {
    std::array<Stretch, 2 * kLevels> levels;  // NOLINT: not to be filled
    const std::int64_t end = std::min(elements, (task + 1) * kTask);
    for (std::int64_t at = task * kTask; at < end; at += kStretch) {
      const std::int64_t count = std::min(kStretch, end - at);
      const float* const result = sum(of, at, count, out + at, levels.data());
      if (result != out + at) std::copy_n(result, count, out + at);
    }
  });
}

}  // namespace spillway
