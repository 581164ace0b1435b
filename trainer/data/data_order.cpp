#include "trainer/data/data_order.h"

#include <algorithm>
#include <bit>

namespace spillway {
namespace {

constexpr int kRounds = 6;
// With fewer bits the halves of the network are so small that many permutations cannot occur; walking a larger one is cheap.
constexpr int kLeastBits = 8;

// A bijective mixer of 64 bits: multiply and xor-shift, with arbitrary odd constants.
std::uint64_t mix(std::uint64_t x) {
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93U;
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93U;
  x ^= x >> 32;
  return x;
}

}  // namespace

Permutation::Permutation(std::uint64_t size, std::uint64_t seed, std::uint64_t epoch)
    : size_(size),
      key_(mix(mix(seed + 0x9e3779b97f4a7c15U) + epoch * 0x9e3779b97f4a7c15U + 1)),
      half_bits_((std::max(kLeastBits, static_cast<int>(std::bit_width(size - 1))) + 1) / 2) {}

std::uint64_t Permutation::at(std::uint64_t index) const {
  const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
  do {
    std::uint64_t left = index >> half_bits_;
    std::uint64_t right = index & mask;
    for (std::uint64_t round = 1; round <= kRounds; ++round) {
      const std::uint64_t mixed = mix(key_ + right + (round << 58)) >> 16 & mask;
      const std::uint64_t next = left ^ mixed;
      left = right;
      right = next;
    }
    index = left << half_bits_ | right;
  } while (index >= size_);
  return index;
}

}  // namespace spillway
