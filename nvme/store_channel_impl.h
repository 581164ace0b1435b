// The part of a store that its channels get, and a channel's state. Private to nvme/: store_channel.h is the interface.
#pragma once

#include <atomic>
#include <optional>
#include <string>
#include <vector>

#include "memory/base/error.h"
#include "nvme/store_channel.h"
#include "nvme/striping.h"

namespace spillway {

struct TrafficCounters {
  std::atomic<Bytes> read_bytes{0};
  std::atomic<Bytes> written_bytes{0};
};

// The part of a store that its channels use; outlives them.
struct ChannelContext {
  const StripeMap* map = nullptr;
  std::span<const std::string> paths;  // [files]
  TrafficCounters* traffic = nullptr;
  Bytes block_bytes = 0;
  std::chrono::milliseconds timeout{0};
};

struct StoreChannel::Impl {
  Impl(const ChannelContext& context, const StoreChannelOptions& options, std::unique_ptr<IoQueue> queue);

  IoTicket start(IoDirection direction, std::span<const IoSegment> segments);
  bool poll(IoTicket ticket, std::chrono::microseconds limit);
  void wait(IoTicket ticket);
  void sync();

  IoQueueKind kind() const noexcept { return queue_->kind(); }

 private:
  using Clock = std::chrono::steady_clock;
  enum class RequestState : std::uint8_t { free, in_flight };

  struct Operation {
    std::uint64_t ticket = 0;  // 0: free
    IoDirection direction = IoDirection::read;
    int unissued_segments = 0;  // segments that are not yet wholly cut into requests
    int in_flight = 0;
    Bytes left = 0;  // of its segments' bytes, not yet moved
    bool complete() const { return unissued_segments == 0 && in_flight == 0; }
  };
  struct Request {
    RequestState state = RequestState::free;
    int operation = 0;
    int attempts = 0;  // attempts without progress
    Clock::time_point started;
    IoRequest io;
  };

  Operation& begin_operation(IoDirection direction, std::size_t segments);
  Operation& find(IoTicket ticket);
  // Puts a request of the operation into the batch; one must be free.
  void add_request(int operation, const IoRequest& request, Clock::time_point now);
  // Moves `segments` into the ring of segments, as far as there is room. Returns how many.
  std::size_t enqueue(std::span<const IoSegment> segments);
  // Cuts segments into requests until the depth is reached, and submits them.
  void issue();
  void advance_until_something_completes();
  void collect(std::chrono::microseconds limit);
  // Puts a request that came back incomplete into the batch again, or fails.
  void resume(int slot, Bytes result);
  void submit_batch();
  void check_for_hung_requests();
  [[noreturn]] void fail(const Request& request, const std::string& reason, const std::string& help);
  void throw_if_failed() const;

  std::unique_ptr<IoQueue> queue_;
  ChannelContext context_;
  std::vector<Operation> operations_;  // [max_operations]
  std::vector<int> issue_order_;       // [max_operations] ring: indices of operations with segments to issue, oldest first
  std::size_t issue_begin_ = 0;
  std::size_t issue_size_ = 0;
  std::vector<IoSegment>
      segments_;  // [max_segments] ring: those to issue, in the order of their operations; the first may be begun
  std::size_t segment_begin_ = 0;
  std::size_t segment_size_ = 0;
  std::vector<Request> requests_;          // [depth]; a request's tag is its index
  std::vector<int> free_requests_;         // [depth]
  std::vector<IoRequest> batch_;           // [depth]
  std::vector<IoCompletion> completions_;  // [depth]
  std::uint64_t last_ticket_ = 0;
  Clock::time_point last_check_;
  std::optional<IoError> error_;
};

}  // namespace spillway
