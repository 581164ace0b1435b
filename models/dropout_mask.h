// Which elements dropout keeps: a function of the micro-batch's key, of the place in the model and of the element, so that a mask
// is never stored, and is the same again wherever it is made again. Not here: the kernel (kernels.h), the key
// (offload/operations.h).
#pragma once

#include <cstdint>

#include "memory/base/random.h"

namespace spillway {

struct DropoutMask {
  std::uint64_t site = 0;  // names the place in the model
  float probability = 0;   // of an element to become 0, below 1

  // Elements whose draw is below it are dropped.
  constexpr std::uint32_t threshold() const {
    return static_cast<std::uint32_t>(static_cast<double>(probability) * 4294967296.0);
  }
  constexpr float factor() const { return 1.0f / (1.0f - probability); }  // on what is kept
  // The key of the elements from group * kRandomKeyIndices on.
  constexpr RandomKey key(std::uint64_t micro_batch, std::uint64_t group) const {
    return random_key(micro_batch, 0, site, group);
  }
  constexpr bool keeps(std::uint64_t micro_batch, std::uint64_t element) const {
    const RandomKey of = key(micro_batch, element / kRandomKeyIndices);
    return random_bits(of, static_cast<std::uint32_t>(element % kRandomKeyIndices)) >= threshold();
  }
  friend bool operator==(const DropoutMask&, const DropoutMask&) = default;
};

}  // namespace spillway
