#include "nvme/io_uring_queue.h"

#include <liburing.h>

#include <algorithm>
#include <cerrno>
#include <thread>
#include <vector>

#include "memory/base/error.h"

namespace spillway {
namespace {

using Clock = std::chrono::steady_clock;

// The kernel takes fixed buffers of at most this size.
constexpr Bytes kLargestFixedBuffer = kGiB;
constexpr auto kPatienceAtEnd = std::chrono::seconds(5);

class Ring {
 public:
  Ring() = default;
  ~Ring() {
    if (open_) io_uring_queue_exit(&ring_);
  }
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  // Returns 0 or an errno.
  int open(unsigned entries) {
    // Completions are reaped by the submitting thread only: no need to interrupt it for each one.
    int rc = io_uring_queue_init(entries, &ring_, IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG);
    if (rc == -EINVAL) rc = io_uring_queue_init(entries, &ring_, 0);
    if (rc < 0) return -rc;
    open_ = true;
    io_uring_probe* probe = io_uring_get_probe_ring(&ring_);
    const bool has_all = probe && io_uring_opcode_supported(probe, IORING_OP_READ) &&
                         io_uring_opcode_supported(probe, IORING_OP_WRITE) && io_uring_opcode_supported(probe, IORING_OP_FSYNC);
    if (probe) io_uring_free_probe(probe);
    return has_all ? 0 : ENOSYS;
  }
  io_uring* get() { return &ring_; }

 private:
  io_uring ring_{};
  bool open_ = false;
};

class IoUringQueue final : public IoQueue {
 public:
  IoUringQueue(const IoQueueOptions& options, std::unique_ptr<Ring> ring)
      : depth_(options.depth), files_(options.files.begin(), options.files.end()), log_(options.log), ring_(std::move(ring)) {
    files_registered_ = io_uring_register_files(ring_->get(), files_.data(), static_cast<unsigned>(files_.size())) == 0;
    register_memory(options.registered);
    failed_.reserve(static_cast<std::size_t>(depth_));
    unsubmitted_.reserve(static_cast<std::size_t>(depth_));
  }

  ~IoUringQueue() override {
    const auto deadline = Clock::now() + kPatienceAtEnd;
    IoCompletion completion;
    try {
      while (in_flight_ > 0 && Clock::now() < deadline) wait({&completion, 1}, std::chrono::milliseconds(100));
    } catch (const IoError&) {
      // The kernel does not say what is complete: requests in flight count as hanging.
    }
    if (in_flight_ > 0 && log_) log_(fmt::format("{} NVMe requests still hang at the end of their queue", in_flight_));
  }

  void submit(std::span<const IoRequest> requests) override {
    SPILLWAY_CHECK(in_flight_ + static_cast<int>(requests.size()) <= depth_, "{} + {} requests in a queue of {}", in_flight_,
                   requests.size(), depth_);
    in_flight_ += static_cast<int>(requests.size());
    for (const IoRequest& request : requests) {
      if (broken_ != 0) {
        failed_.push_back({request.tag, -broken_});
        continue;
      }
      prepare(request);
      unsubmitted_.push_back(request.tag);
    }
    flush();
  }

  int wait(std::span<IoCompletion> completions, std::chrono::microseconds timeout) override {
    int count = 0;
    const int room = static_cast<int>(completions.size());
    while (count < room && !failed_.empty()) {
      completions[static_cast<std::size_t>(count++)] = failed_.back();
      failed_.pop_back();
    }
    count += reap(completions.subspan(static_cast<std::size_t>(count)));
    const auto deadline = Clock::now() + timeout;
    while (count == 0 && in_flight_ > 0 && room > 0) {
      const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(deadline - Clock::now());
      if (left.count() <= 0) break;
      __kernel_timespec limit{.tv_sec = left.count() / 1'000'000'000, .tv_nsec = left.count() % 1'000'000'000};
      io_uring_cqe* cqe = nullptr;
      const int rc = io_uring_wait_cqe_timeout(ring_->get(), &cqe, &limit);
      if (rc < 0 && rc != -ETIME && rc != -EINTR && rc != -EAGAIN) {
        throw IoError(
            fmt::format("io_uring: waiting for {} requests failed: {}", in_flight_, std::generic_category().message(-rc)));
      }
      count += reap(completions);
    }
    in_flight_ -= count;
    return count;
  }

  int depth() const noexcept override { return depth_; }
  IoQueueKind kind() const noexcept override { return IoQueueKind::io_uring; }

 private:
  void register_memory(std::span<const std::span<std::byte>> regions) {
    for (std::span<std::byte> region : regions) {
      for (Bytes at = 0; at < std::ssize(region); at += kLargestFixedBuffer) {
        const Bytes bytes = std::min(kLargestFixedBuffer, static_cast<Bytes>(std::ssize(region)) - at);
        fixed_.push_back({.iov_base = region.data() + at, .iov_len = static_cast<std::size_t>(bytes)});
      }
    }
    if (fixed_.empty()) return;
    // Mostly the limit on locked memory refuses this. The same requests then go with plain addresses.
    if (io_uring_register_buffers(ring_->get(), fixed_.data(), static_cast<unsigned>(fixed_.size())) != 0) fixed_.clear();
  }

  // The fixed buffer that holds the whole request, or -1.
  int fixed_buffer_of(const IoRequest& request) const {
    for (std::size_t i = 0; i < fixed_.size(); ++i) {
      const auto* begin = static_cast<const std::byte*>(fixed_[i].iov_base);
      if (request.memory >= begin && request.memory + request.bytes <= begin + fixed_[i].iov_len) return static_cast<int>(i);
    }
    return -1;
  }

  void prepare(const IoRequest& request) {
    io_uring_sqe* sqe = io_uring_get_sqe(ring_->get());
    SPILLWAY_CHECK(sqe, "the submission ring of {} entries is full", depth_);
    const int file = files_registered_ ? request.file : files_[static_cast<std::size_t>(request.file)];
    const auto bytes = static_cast<unsigned>(request.bytes);
    const auto offset = static_cast<std::uint64_t>(request.offset);
    const int fixed = fixed_buffer_of(request);
    const bool read = request.direction == IoDirection::read, write = request.direction == IoDirection::write;
    if (fixed >= 0 && read) io_uring_prep_read_fixed(sqe, file, request.memory, bytes, offset, fixed);
    if (fixed >= 0 && write) io_uring_prep_write_fixed(sqe, file, request.memory, bytes, offset, fixed);
    if (fixed < 0 && read) io_uring_prep_read(sqe, file, request.memory, bytes, offset);
    if (fixed < 0 && write) io_uring_prep_write(sqe, file, request.memory, bytes, offset);
    if (!read && !write) io_uring_prep_fsync(sqe, file, IORING_FSYNC_DATASYNC);
    if (files_registered_) sqe->flags |= IOSQE_FIXED_FILE;
    io_uring_sqe_set_data64(sqe, request.tag);
  }

  // Hands the prepared entries to the kernel, which takes them in order.
  void flush() {
    std::size_t taken = 0;
    for (int patience = 1000; taken < unsubmitted_.size();) {
      const int rc = io_uring_submit(ring_->get());
      if (rc > 0) {
        taken += static_cast<std::size_t>(rc);
        continue;
      }
      if ((rc == 0 || rc == -EAGAIN || rc == -EBUSY || rc == -EINTR) && --patience > 0) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        continue;
      }
      // Entries that the kernel did not take stay in the ring, which is therefore never submitted again.
      broken_ = rc < 0 ? -rc : EAGAIN;
      for (; taken < unsubmitted_.size(); ++taken) failed_.push_back({unsubmitted_[taken], -broken_});
    }
    unsubmitted_.clear();
  }

  int reap(std::span<IoCompletion> completions) {
    int count = 0;
    io_uring_cqe* cqe = nullptr;
    while (count < std::ssize(completions) && io_uring_peek_cqe(ring_->get(), &cqe) == 0) {
      completions[static_cast<std::size_t>(count++)] = {io_uring_cqe_get_data64(cqe), cqe->res};
      io_uring_cqe_seen(ring_->get(), cqe);
    }
    return count;
  }

  int depth_;
  std::vector<int> files_;
  LogSink log_;
  std::unique_ptr<Ring> ring_;
  bool files_registered_ = false;
  std::vector<iovec> fixed_;  // empty where registration was refused
  int in_flight_ = 0;
  int broken_ = 0;                          // errno with which the kernel stopped taking entries
  std::vector<std::uint64_t> unsubmitted_;  // tags of entries in the ring that the kernel has not taken yet
  std::vector<IoCompletion> failed_;        // requests that could not be started
};

}  // namespace

std::unique_ptr<IoQueue> make_io_uring_queue(const IoQueueOptions& options, int& refused) {
  auto ring = std::make_unique<Ring>();
  refused = ring->open(static_cast<unsigned>(options.depth));
  if (refused != 0) return nullptr;
  return std::make_unique<IoUringQueue>(options, std::move(ring));
}

}  // namespace spillway
