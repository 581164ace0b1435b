// Keeps the state of one moment as it is while steps go on, so that it can be copied beside training. Where state is durable,
// steps are written beside it in the store and not made durable; elsewhere steps run until their updates, which wait for the end
// of the hold. Not here: who copies (trainer/keep/checkpoint_copy.h).
#pragma once

#include <atomic>
#include <cstddef>
#include <span>
#include <utility>

#include "memory/plan/plan.h"

namespace spillway {

class StateHold {
 public:
  // Counts itself in `holds` while it lives; its maker must outlive it. `device`: the device's arena.
  StateHold(std::atomic<int>& holds, const Plan& plan, std::span<const std::byte> device) noexcept
      : holds_(&holds), plan_(&plan), device_(device) {
    holds.fetch_add(1);
  }
  ~StateHold() {
    if (holds_ == nullptr) return;
    holds_->fetch_sub(1);
    holds_->notify_all();
  }
  StateHold(StateHold&& other) noexcept
      : holds_(std::exchange(other.holds_, nullptr)), plan_(other.plan_), device_(other.device_) {}
  StateHold& operator=(StateHold&&) = delete;

  // A block's array that rests on the device. Only in a run whose steps are not durable: there no update changes it meanwhile.
  std::span<const std::byte> on_device(int block, StateKind kind) const {
    const int index = plan_->blocks.at(static_cast<std::size_t>(block)).find(kind)->buffer;
    const Buffer& buffer = plan_->resident[static_cast<std::size_t>(index)];
    return device_.subspan(static_cast<std::size_t>(buffer.offset), static_cast<std::size_t>(buffer.bytes));
  }

 private:
  std::atomic<int>* holds_;
  const Plan* plan_;
  std::span<const std::byte> device_;
};

}  // namespace spillway
