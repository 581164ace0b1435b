// A disk that is late with one write, until the step after has its loss: so a step still has a write to come when another is
// stopped.
// Not here: requests that fail (tests/nvme/faulty_queue.h).
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "nvme/store.h"
#include "tests/offload/small_training.h"

namespace spillway {

// A closed gate holds every thread that comes to it; it can be opened once it holds one. Waiting ends in vain after 20 seconds.
class Gate {
 public:
  void close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    held_ = in_vain_ = false;
  }
  void pass() {
    std::unique_lock lock(mutex_);
    if (!closed_) return;
    held_ = true;
    changed_.notify_all();
    wait(lock, [&] { return !closed_; });
  }
  void open() {
    std::unique_lock lock(mutex_);
    if (!closed_) return;
    wait(lock, [&] { return held_; });
    closed_ = false;
    changed_.notify_all();
  }
  bool held_and_opened() {
    const std::lock_guard lock(mutex_);
    return held_ && !closed_ && !in_vain_;
  }

 private:
  void wait(std::unique_lock<std::mutex>& lock, const std::function<bool()>& until) {
    if (!changed_.wait_for(lock, std::chrono::seconds(20), until)) in_vain_ = true;
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  bool closed_ = false, held_ = false, in_vain_ = false;
};

// Writes of some extents pass a gate before they reach the disk, and so do all requests that the lane would start after them.
class LateWrites final : public IoQueue {
 public:
  struct Extent {
    Bytes begin = 0, bytes = 0;  // in the one file of the store
  };
  LateWrites(std::unique_ptr<IoQueue> inner, std::vector<Extent> late, Gate& gate)
      : inner_(std::move(inner)), late_(std::move(late)), gate_(gate) {}

  void submit(std::span<const IoRequest> requests) override {
    for (const IoRequest& request : requests) {
      const auto has = [&](const Extent& extent) {
        return request.offset >= extent.begin && request.offset < extent.begin + extent.bytes;
      };
      if (request.direction == IoDirection::write && std::any_of(late_.begin(), late_.end(), has)) gate_.pass();
      inner_->submit({&request, 1});
    }
  }
  int wait(std::span<IoCompletion> completions, std::chrono::microseconds timeout) override {
    return inner_->wait(completions, timeout);
  }
  int depth() const noexcept override { return inner_->depth(); }
  IoQueueKind kind() const noexcept override { return inner_->kind(); }

 private:
  std::unique_ptr<IoQueue> inner_;
  std::vector<Extent> late_;
  Gate& gate_;
};

// The extents, in both slots, that the `back`-th of the step's writes, counted from the last, writes.
inline std::vector<LateWrites::Extent> extents_of_write(const Plan& plan, int back) {
  std::vector<LateWrites::Extent> extents;
  for (auto op = plan.step.ops.rbegin(); op != plan.step.ops.rend(); ++op) {
    if (op->lane != Lane::nvme_write || back-- > 0) continue;
    for (const Operand& operand : op->operands) {
      if (operand.role != Role::to) continue;
      const Buffer& buffer = buffer_of(plan, plan.step, operand.buffer);
      for (int slot = 0; slot < buffer.slots; ++slot)
        extents.push_back({buffer.offset + slot * buffer.bytes + operand.begin, operand.bytes});
    }
    break;
  }
  return extents;
}

// A backend that calls a function when a list has run.
class TellingBackend final : public Backend {
 public:
  TellingBackend(Backend& backend, const CallList& list, std::function<void(const PassMemory&)> told)
      : backend_(backend), list_(list), told_(std::move(told)) {}
  void prepare(const CompiledModel& model) override { backend_.prepare(model); }
  void run(const CallList& list, const PassMemory& memory) override {
    backend_.run(list, memory);
    if (&list == &list_) told_(memory);
  }

 private:
  Backend& backend_;
  const CallList& list_;
  std::function<void(const PassMemory&)> told_;
};

}  // namespace spillway
