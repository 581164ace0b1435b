// The chain of tiers from where a device computes to where most rests. A move crosses one link of it.
// Not here: what rests where (plan.h), when it moves (residency.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "memory/types.h"

namespace spillway {

// A device whose memory is the host's has no tier between it and a drive.
enum class Chain : std::uint8_t { device_nvme, device_host_nvme };

inline constexpr std::array<Tier, 2> kDeviceAndNvme = {Tier::device, Tier::nvme};
inline constexpr std::array<Tier, 3> kDeviceHostAndNvme = {Tier::device, Tier::host, Tier::nvme};
constexpr std::span<const Tier> tiers_of(Chain chain) {
  return chain == Chain::device_nvme ? std::span<const Tier>(kDeviceAndNvme) : std::span<const Tier>(kDeviceHostAndNvme);
}
constexpr bool has_host(Chain chain) { return chain == Chain::device_host_nvme; }

// Links between the device and a tier.
constexpr int depth_of(Chain chain, Tier tier) {
  return tier == Tier::nvme && has_host(chain) ? 2 : tier == Tier::device ? 0 : 1;
}
constexpr int links_between(Chain chain, Tier a, Tier b) {
  const int links = depth_of(chain, a) - depth_of(chain, b);
  return links < 0 ? -links : links;
}
// The tier behind the next link on the way from one to another.
constexpr Tier next_towards(Chain chain, Tier from, Tier to) {
  const int depth = depth_of(chain, from);
  return tiers_of(chain)[static_cast<std::size_t>(depth_of(chain, to) > depth ? depth + 1 : depth - 1)];
}

// What moves bytes from a tier to its neighbour.
constexpr Lane lane_between(Tier from, Tier to) {
  if (to == Tier::nvme) return Lane::nvme_write;
  if (from == Tier::nvme) return Lane::nvme_read;
  return to == Tier::device ? Lane::upload : Lane::download;
}

}  // namespace spillway
