#include "offload/tier_memory.h"

#include "memory/arena.h"
#include "memory/error.h"

namespace spillway {
namespace {

Bytes peak_of(const Plan& plan, Tier tier) { return plan.peak[static_cast<std::size_t>(tier)]; }

}  // namespace

TierMemory::TierMemory(const Plan& plan, const ThreadPool& pool)
    : has_host_(has_host(plan.choices.chain)),
      runtime_(has_host_ ? Runtime::make_cpu_apart() : Runtime::make_cpu()),
      device_(runtime_->allocate(Tier::device, peak_of(plan, Tier::device), "device")),
      host_(runtime_->allocate(Tier::host, peak_of(plan, Tier::host), "host")),
      device_view_(runtime_->device_pointer(device_.data())) {
  prefault(pool, device_view_, device_.bytes());
  prefault(pool, host_.data(), host_.bytes());
}

std::span<std::byte> TierMemory::beside_nvme() const {
  return has_host_ ? std::span(host_.data(), static_cast<std::size_t>(host_.bytes())) : device();
}

void TierMemory::copy_in(Tier tier, Bytes offset, std::span<const std::byte> from) {
  runtime_->copy(handle(tier, offset), from.data(), static_cast<Bytes>(from.size()));
}

void TierMemory::copy_out(Tier tier, Bytes offset, std::span<std::byte> to) {
  runtime_->copy(to.data(), handle(tier, offset), static_cast<Bytes>(to.size()));
}

}  // namespace spillway
