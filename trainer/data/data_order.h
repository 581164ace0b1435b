// A pseudo-random permutation of [0, n) that is computed, not stored: a data position is (epoch, index) and nothing else.
// Not here: random numbers for weights and rounding.
#pragma once

#include <cstdint>

namespace spillway {

// A Feistel network over the next even number of bits, repeated until the result is below n. Each (seed, epoch) has its own
// permutation.
class Permutation {
 public:
  Permutation(std::uint64_t size, std::uint64_t seed, std::uint64_t epoch);
  std::uint64_t at(std::uint64_t index) const;  // index < size

 private:
  std::uint64_t size_;
  std::uint64_t key_;
  int half_bits_;
};

}  // namespace spillway
