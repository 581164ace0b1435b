// A pseudo-random permutation of [0, n) that is computed, not stored: a data position is (epoch, index) and nothing else.
// Not here: randomness for weights and rounding.
#pragma once

#include <cstdint>

namespace spillway {

// A Feistel network over the next even number of bits, walked until it lands below n. Every (seed, epoch) is another permutation.
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
