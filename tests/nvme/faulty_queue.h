// A queue that misbehaves on order: short, failed, delayed, reordered and lost completions. Wraps a queue that works.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "nvme/io_queue.h"

namespace spillway {

struct Fault {
  enum class Kind { none, short_result, error, lost, stray } kind = Kind::none;
  Bytes value = 0;  // bytes at most, for a short result; errno, for an error (a negative one is a number of bytes)
};

struct FaultPlan {
  // Asked once for every request submitted; `count` numbers them from 0.
  std::function<Fault(const IoRequest& request, int count)> fault = [](const IoRequest&, int) { return Fault{}; };
  // Completions are held back and come in an order drawn from the seed.
  bool reorder = false;
  std::uint64_t seed = 1;
};

class FaultyQueue final : public IoQueue {
 public:
  FaultyQueue(std::unique_ptr<IoQueue> inner, FaultPlan plan)
      : inner_(std::move(inner)), plan_(std::move(plan)), random_(plan_.seed) {}

  void submit(std::span<const IoRequest> requests) override {
    for (IoRequest request : requests) {
      const Fault fault = plan_.fault(request, count_++);
      if (fault.kind == Fault::Kind::lost) continue;
      if (fault.kind == Fault::Kind::error) {
        ready_.push_back({request.tag, -fault.value});
        continue;
      }
      if (fault.kind == Fault::Kind::short_result) {
        // The whole pages are really moved; the bytes beyond them are only claimed.
        const Bytes whole = std::min(fault.value, request.bytes) / kExtentAlignment * kExtentAlignment;
        if (whole == 0) {
          ready_.push_back({request.tag, std::min(fault.value, request.bytes)});
          continue;
        }
        claims_.push_back({request.tag, std::min(fault.value, request.bytes)});
        request.bytes = whole;
      }
      if (fault.kind == Fault::Kind::stray) ready_.push_back({request.tag + 1000, request.bytes});
      inner_->submit({&request, 1});
      ++inner_in_flight_;
    }
  }

  int wait(std::span<IoCompletion> completions, std::chrono::microseconds timeout) override {
    if (completions.empty()) return 0;
    // Reordering needs all completions at hand; otherwise those that are there are enough.
    while (inner_in_flight_ > 0 && (plan_.reorder || ready_.empty())) {
      IoCompletion got;
      if (inner_->wait({&got, 1}, timeout) == 0) break;
      --inner_in_flight_;
      const auto claim = std::find_if(claims_.begin(), claims_.end(), [&](const IoCompletion& c) { return c.tag == got.tag; });
      if (claim != claims_.end()) {
        got.result = claim->result;
        claims_.erase(claim);
      }
      ready_.push_back(got);
    }
    if (ready_.empty()) {
      std::this_thread::sleep_for(timeout);
      return 0;
    }
    const std::size_t pick = plan_.reorder ? random_() % ready_.size() : 0;
    completions[0] = ready_[pick];
    ready_.erase(ready_.begin() + static_cast<std::ptrdiff_t>(pick));
    return 1;
  }

  int depth() const noexcept override { return inner_->depth(); }
  IoQueueKind kind() const noexcept override { return inner_->kind(); }

 private:
  std::unique_ptr<IoQueue> inner_;
  FaultPlan plan_;
  std::mt19937_64 random_;
  int count_ = 0;
  int inner_in_flight_ = 0;
  std::vector<IoCompletion> ready_;
  std::vector<IoCompletion> claims_;  // results that short requests will report, by tag
};

}  // namespace spillway
