// The memory in which a plan's tiers lie, but for NVMe, and how its bytes are reached: by the operations of the tier that they
// are on, and by copies for everybody else.
// Not here: what lies where (memory/plan.h), the store (nvme/store.h).
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "memory/error.h"
#include "memory/parallel.h"
#include "memory/plan.h"
#include "memory/runtime.h"

namespace spillway {

class TierMemory {
 public:
  // Reserved, and backed by pages, so that no page fault falls into a step; what rests there is zeros. Both must outlive it.
  TierMemory(const Plan& plan, Runtime& runtime, const ThreadPool& pool);

  Runtime& runtime() const { return runtime_; }
  // As operations that run on the tier have it, and the lanes of NVMe.
  std::byte* at(Tier tier, Bytes offset) const { return view_[known(tier)] + offset; }
  // As the runtime's copies have it.
  std::byte* handle(Tier tier, Bytes offset) const { return memory_[known(tier)]->data() + offset; }
  std::span<std::byte> device() const { return all_of(Tier::device); }
  // What NVMe's lanes read into and write from: the last memory of the chain.
  bool is_beside_nvme(Tier tier) const { return tier == beside_nvme_; }
  std::span<std::byte> beside_nvme() const { return all_of(beside_nvme_); }

  // From and to anybody's memory. Complete on return; not while operations touch these bytes.
  void copy_in(Tier tier, Bytes offset, std::span<const std::byte> from);
  void copy_out(Tier tier, Bytes offset, std::span<std::byte> to);

 private:
  Tier known(Tier tier) const {
    SPILLWAY_CHECK(memory_[tier].has_value(), "{} is no memory here", name_of(tier));
    return tier;
  }
  std::span<std::byte> all_of(Tier tier) const { return {view_[known(tier)], static_cast<std::size_t>(memory_[tier]->bytes())}; }

  Runtime& runtime_;
  By<Tier, std::optional<Allocation>> memory_;  // of the chain's tiers that are memory
  By<Tier, std::byte*> view_;                   // of each, as operations have it
  Tier beside_nvme_ = Tier::device;
};

}  // namespace spillway
