#include "offload/tier_memory.h"

#include <string>

#include "memory/arena.h"
#include "memory/chain.h"

namespace spillway {

TierMemory::TierMemory(const Plan& plan, const ThreadPool& pool)
    : runtime_(has_host(plan.choices.chain) ? Runtime::make_cpu_apart() : Runtime::make_cpu()) {
  for (const Tier tier : tiers_of(plan.choices.chain)) {
    if (!in_memory(tier)) continue;
    const Allocation& made = memory_[tier].emplace(runtime_->allocate(tier, plan.peak[tier], std::string(name_of(tier))));
    view_[tier] = tier == Tier::device ? runtime_->device_pointer(made.data()) : made.data();
    prefault(pool, view_[tier], made.bytes());
    beside_nvme_ = tier;
  }
}

void TierMemory::copy_in(Tier tier, Bytes offset, std::span<const std::byte> from) {
  runtime_->copy(handle(tier, offset), from.data(), static_cast<Bytes>(from.size()));
}

void TierMemory::copy_out(Tier tier, Bytes offset, std::span<std::byte> to) {
  runtime_->copy(to.data(), handle(tier, offset), static_cast<Bytes>(to.size()));
}

}  // namespace spillway
