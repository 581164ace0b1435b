// Bytes that the same training takes in the layout of other trainers, in the field's well-known closed forms, for comparison.
// Not here: the bytes that Spillway takes (plan.h).
//
// Legend: P parameters, N ranks that shard; s tokens of a sequence, b sequences, h hidden, a heads.
#pragma once

#include <cstdint>

#include "memory/plan/sharding.h"

namespace spillway {

// A rank's bytes of weights (2P), gradients (2P), and fp32 master, m and v (12P) in mixed-precision Adam. Each part is sharded
// from its ZeRO stage on. Of frozen parameters there are the weights alone.
constexpr double peer_state_bytes(std::int64_t trained, std::int64_t frozen, const Sharding& sharding) {
  const double of_rank = 1.0 / sharding.group;
  const auto part = [&](int stage) { return sharding.stage >= stage ? of_rank : 1.0; };
  return static_cast<double>(trained + frozen) * 2 * part(3) + static_cast<double>(trained) * (2 * part(2) + 12 * part(1));
}

// Activations of one layer without recomputation, in 16 bits, with attention's scores kept: sbh (34 + 5 a s / h).
constexpr double peer_activation_bytes(std::int64_t s, std::int64_t b, std::int64_t h, std::int64_t a) {
  return static_cast<double>(s * b * h) * (34 + 5 * static_cast<double>(a * s) / static_cast<double>(h));
}

}  // namespace spillway
