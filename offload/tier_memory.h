// The memory in which a plan's tiers lie, but for NVMe, and how its bytes are reached: by the operations of the tier that they
// are on, and by copies for everybody else.
// Not here: what lies where (memory/plan.h), the store (nvme/store.h).
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "memory/error.h"
#include "memory/parallel.h"
#include "memory/plan.h"
#include "memory/runtime.h"

namespace spillway {

class TierMemory {
 public:
  // Reserved, and backed by pages, so that no page fault falls into a step.
  TierMemory(const Plan& plan, const ThreadPool& pool);

  Runtime& runtime() { return *runtime_; }
  // As operations that run on the tier have it, and the lanes of NVMe.
  std::byte* at(Tier tier, Bytes offset) const {
    SPILLWAY_CHECK(in_memory(tier), "an address of NVMe");
    return (tier == Tier::device ? device_view_ : host_.data()) + offset;
  }
  // As the runtime's copies have it.
  std::byte* handle(Tier tier, Bytes offset) const {
    SPILLWAY_CHECK(in_memory(tier), "a handle of NVMe");
    return (tier == Tier::device ? device_.data() : host_.data()) + offset;
  }
  std::span<std::byte> device() const { return {device_view_, static_cast<std::size_t>(device_.bytes())}; }
  bool is_beside_nvme(Tier tier) const { return tier == (has_host_ ? Tier::host : Tier::device); }
  // What NVMe's lanes read into and write from.
  std::span<std::byte> beside_nvme() const;

  // From and to anybody's memory. Complete on return; not while operations touch these bytes.
  void copy_in(Tier tier, Bytes offset, std::span<const std::byte> from);
  void copy_out(Tier tier, Bytes offset, std::span<std::byte> to);

 private:
  const bool has_host_;
  const std::unique_ptr<Runtime> runtime_;
  const Allocation device_, host_;
  std::byte* const device_view_;
};

}  // namespace spillway
