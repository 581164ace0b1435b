#include "offload/tier_memory.h"

#include <string>

#include "memory/plan/chain.h"
#include "memory/runtime/arena.h"

namespace spillway {

TierMemory::TierMemory(const Plan& plan, Runtime& runtime, const ThreadPool& pool) : runtime_(runtime) {
  for (const Tier tier : tiers_of(plan.choices.chain)) {
    if (!in_memory(tier)) continue;
    const Allocation& made = memory_[tier].emplace(runtime.allocate(tier, plan.peak[tier], std::string(name_of(tier))));
    view_[tier] = tier == Tier::device ? runtime.device_pointer(made.data()) : made.data();
    beside_nvme_ = tier;
    if (runtime.host_sees_device()) prefault(pool, view_[tier], made.bytes());  // else the runtime has done so where needed
  }
  if (runtime.host_sees_device()) return;  // its pages are zeros already
  for (const Buffer& buffer : plan.resident) {
    if (buffer.tier == Tier::device) runtime.clear(handle(Tier::device, buffer.offset), buffer.bytes * buffer.slots);
  }
}

void TierMemory::copy_in(Tier tier, Bytes offset, std::span<const std::byte> from) {
  runtime_.copy(handle(tier, offset), from.data(), static_cast<Bytes>(from.size()));
}

void TierMemory::copy_out(Tier tier, Bytes offset, std::span<std::byte> to) {
  runtime_.copy(to.data(), handle(tier, offset), static_cast<Bytes>(to.size()));
}

}  // namespace spillway
