// The memory of a plan's tiers other than NVMe, and access to its bytes: operations on the tier reach them directly, everybody
// else by copies.
// Not here: where buffers lie (memory/plan/plan.h), the store (nvme/store.h).
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "memory/base/error.h"
#include "memory/base/parallel.h"
#include "memory/plan/plan.h"
#include "memory/runtime/runtime.h"

namespace spillway {

class TierMemory {
 public:
  // Reserves the memory and has its pages backed, so that no page fault falls into a step; resident buffers are zeros. `runtime`
  // must outlive it.
  TierMemory(const Plan& plan, Runtime& runtime, const ThreadPool& pool);

  Runtime& runtime() const { return runtime_; }
  // Address for operations that run on the tier, and for the lanes of NVMe.
  std::byte* at(Tier tier, Bytes offset) const { return view_[known(tier)] + offset; }
  // Address for the runtime's copies.
  std::byte* handle(Tier tier, Bytes offset) const { return memory_[known(tier)]->data() + offset; }
  std::span<std::byte> device() const { return all_of(Tier::device); }
  // The memory that NVMe's lanes read into and write from: the last one of the chain.
  bool is_beside_nvme(Tier tier) const { return tier == beside_nvme_; }
  std::span<std::byte> beside_nvme() const { return all_of(beside_nvme_); }

  // Copy from and to any memory. Complete on return; not allowed while operations touch these bytes.
  void copy_in(Tier tier, Bytes offset, std::span<const std::byte> from);
  void copy_out(Tier tier, Bytes offset, std::span<std::byte> to);

 private:
  Tier known(Tier tier) const {
    SPILLWAY_CHECK(memory_[tier].has_value(), "{} is no memory here", name_of(tier));
    return tier;
  }
  std::span<std::byte> all_of(Tier tier) const { return {view_[known(tier)], static_cast<std::size_t>(memory_[tier]->bytes())}; }

  Runtime& runtime_;
  By<Tier, std::optional<Allocation>> memory_;  // present for the chain's tiers that are memory
  By<Tier, std::byte*> view_;                   // first address of each for operations
  Tier beside_nvme_ = Tier::device;
};

}  // namespace spillway
