// Counter-based random numbers: a function of (seed, step, stream, index), so that no schedule, thread count or cut of the work
// changes an element's number. Not here: generators with a state, and anything secret.
#pragma once

#include <cstdint>

namespace spillway {

// The number of indices that share a key; the lanes of a kernel differ in these alone. So the cheap mixing of random_bits() only
// has to tell 16 bits of an index apart, and everything else that names a number goes through the thorough mixing of
// random_key().
inline constexpr std::uint64_t kRandomKeyIndices = 1 << 16;

// The steps of random_bits() are constants of their own so that vector kernels do the same arithmetic.
inline constexpr std::uint32_t kRandomStride = 0x9e3779b1u;
inline constexpr std::uint32_t kRandomMix = 0x846ca68bu;

struct RandomKey {
  std::uint32_t first, second;
};

constexpr std::uint64_t mix64(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// `stream` names the user of the numbers, for example a block of parameters. `group` is index / kRandomKeyIndices.
constexpr RandomKey random_key(std::uint64_t seed, std::uint64_t step, std::uint64_t stream, std::uint64_t group) {
  constexpr std::uint64_t odd = 0x9e3779b97f4a7c15u;  // keeps 0 from being mixed to 0
  std::uint64_t key = mix64(seed + odd);
  key = mix64(key ^ (step + odd));
  key = mix64(key ^ (stream + odd));
  key = mix64(key ^ (group + odd));
  return {static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32)};
}

// 32 random bits for index `place` of the key's indices. The first product is a counter, which lanes advance by addition. The
// second half of the key enters between the rounds: otherwise two keys would give the same numbers in another order.
constexpr std::uint32_t random_bits(RandomKey key, std::uint32_t place) {
  std::uint32_t x = place * kRandomStride + key.first;
  x = (x ^ (x >> 16) ^ key.second) * kRandomMix;
  return x ^ (x >> 16);
}

constexpr std::uint32_t random_bits(std::uint64_t seed, std::uint64_t step, std::uint64_t stream, std::uint64_t index) {
  return random_bits(random_key(seed, step, stream, index / kRandomKeyIndices),
                     static_cast<std::uint32_t>(index % kRandomKeyIndices));
}

}  // namespace spillway
