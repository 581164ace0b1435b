// The chain of tiers, from the memory where a device computes to the tier where most bytes rest. A move crosses one link of it.
// Not here: what rests where (choices.h), when it moves (passes/residency.h).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "memory/base/error.h"
#include "memory/base/types.h"

namespace spillway {

// A device that shares the host's memory has no tier between it and a drive: device_nvme.
enum class Chain : std::uint8_t { device_nvme, device_host_nvme };

inline constexpr std::array kDeviceAndNvme = {Tier::device, Tier::nvme};
inline constexpr std::array kDeviceHostAndNvme = {Tier::device, Tier::host, Tier::nvme};
inline constexpr std::span<const Tier> kChains[] = {kDeviceAndNvme, kDeviceHostAndNvme};  // by Chain, longer ones later
constexpr std::span<const Tier> tiers_of(Chain chain) { return kChains[static_cast<std::size_t>(chain)]; }
constexpr bool is_in(Chain chain, Tier tier) { return std::ranges::count(tiers_of(chain), tier) > 0; }
// True when the device has memory of its own, and the host's is a tier below it: the device makes and adds up gradients itself.
constexpr bool has_host(Chain chain) { return is_in(chain, Tier::host); }
// True when the next tier below the device is memory: no drive's lanes reach the device, and a unit may choose the tier that it
// spills to.
constexpr bool has_memory_below(Chain chain) { return in_memory(tiers_of(chain)[1]); }

// Number of links between the device and a tier; for a tier that is not in the chain, the number of the chain's tiers.
constexpr int depth_of(Chain chain, Tier tier) {
  int depth = 0;
  for (const Tier in_chain : tiers_of(chain)) {
    if (in_chain == tier) break;
    ++depth;
  }
  return depth;
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

// Two neighbours in a chain, and the lanes that move bytes away from the device and towards it.
struct Link {
  Tier above, below;
  Lane down, up;
};
inline constexpr Link kLinks[] = {{Tier::device, Tier::host, Lane::download, Lane::upload},
                                  {Tier::device, Tier::nvme, Lane::nvme_write, Lane::nvme_read},
                                  {Tier::host, Tier::nvme, Lane::nvme_write, Lane::nvme_read}};
static_assert(std::ranges::all_of(kLinks, [](const Link& link) { return in_memory(link.above); }),
              "a lane moves to or from memory");
inline Lane lane_between(Tier from, Tier to) {
  for (const Link& link : kLinks) {
    if (link.above == from && link.below == to) return link.down;
    if (link.below == from && link.above == to) return link.up;
  }
  SPILLWAY_CHECK(false, "no link joins {} and {}", name_of(from), name_of(to));
}
// The first link that a lane moves across, as all of its links are alike; null where it moves nothing.
constexpr const Link* link_of(Lane lane) {
  for (const Link& link : kLinks) {
    if (link.up == lane || link.down == lane) return &link;
  }
  return nullptr;
}
// True when a lane moves bytes: towards the device; between two memories; between a memory and a drive, a few moves at a time.
constexpr bool is_upward(Lane lane) { return link_of(lane) != nullptr && link_of(lane)->up == lane; }
constexpr bool is_copy(Lane lane) { return link_of(lane) != nullptr && in_memory(link_of(lane)->below); }
constexpr bool is_drive(Lane lane) { return link_of(lane) != nullptr && !in_memory(link_of(lane)->below); }

}  // namespace spillway
