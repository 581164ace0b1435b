// Counter-based random numbers: a function of (seed, step, stream, index), so that no schedule, thread count or cut of the work
// changes what an element draws. Not here: generators with a state, and anything secret.
#pragma once

#include <cstdint>

namespace spillway {

// The mixing steps are constants of their own so that vector kernels do the same arithmetic.
inline constexpr std::uint32_t kMixFirst = 0x7feb352du;
inline constexpr std::uint32_t kMixSecond = 0x846ca68bu;

// Constant over the indices that share their upper 32 bits: the lower ones are all that a kernel's lanes differ in.
struct RandomKey {
  std::uint32_t first, second;
};

constexpr std::uint64_t mix64(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// `stream` names what draws: a block of parameters, say. `index_high` is index >> 32.
constexpr RandomKey random_key(std::uint64_t seed, std::uint64_t step, std::uint64_t stream, std::uint64_t index_high) {
  constexpr std::uint64_t odd = 0x9e3779b97f4a7c15u;  // keeps 0 from being mixed to 0
  std::uint64_t key = mix64(seed + odd);
  key = mix64(key ^ (step + odd));
  key = mix64(key ^ (stream + odd));
  key = mix64(key ^ (index_high + odd));
  return {static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32)};
}

// 32 random bits. The second half of the key enters between the rounds: otherwise two keys would give the same numbers in
// another order.
constexpr std::uint32_t random_bits(RandomKey key, std::uint32_t index_low) {
  std::uint32_t x = index_low ^ key.first;
  x = (x ^ (x >> 16)) * kMixFirst;
  x = ((x ^ (x >> 15)) + key.second) * kMixSecond;
  return x ^ (x >> 16);
}

constexpr std::uint32_t random_bits(std::uint64_t seed, std::uint64_t step, std::uint64_t stream, std::uint64_t index) {
  return random_bits(random_key(seed, step, stream, index >> 32), static_cast<std::uint32_t>(index));
}

}  // namespace spillway
