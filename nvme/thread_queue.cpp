#include "nvme/thread_queue.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "memory/base/error.h"
#include "memory/base/prompt_thread.h"

namespace spillway {
namespace {

constexpr auto kPatienceAtEnd = std::chrono::seconds(5);

// A first-in first-out ring that never grows.
template <typename T>
class FixedRing {
 public:
  explicit FixedRing(int capacity) : items_(static_cast<std::size_t>(capacity)) {}
  bool empty() const { return size_ == 0; }
  void push(const T& item) { items_[(begin_ + size_++) % items_.size()] = item; }
  T pop() {
    const T item = items_[begin_];
    begin_ = (begin_ + 1) % items_.size();
    --size_;
    return item;
  }

 private:
  std::vector<T> items_;
  std::size_t begin_ = 0;
  std::size_t size_ = 0;
};

// State shared with the threads, so that a thread that hangs in the kernel can outlive the queue.
struct Shared {
  Shared(std::span<const int> descriptors, int depth)
      : files(descriptors.begin(), descriptors.end()), requests(depth), completions(depth) {}
  std::vector<int> files;
  std::mutex mutex;
  std::condition_variable work;
  std::condition_variable done;
  FixedRing<IoRequest> requests;
  FixedRing<IoCompletion> completions;
  bool stop = false;
};

// Returns the bytes moved, or -1 with errno.
ssize_t carry_out(const IoRequest& request, int file) {
  const auto bytes = static_cast<std::size_t>(request.bytes);
  switch (request.direction) {
    case IoDirection::read: return pread(file, request.memory, bytes, request.offset);
    case IoDirection::write: return pwrite(file, request.memory, bytes, request.offset);
    case IoDirection::sync: return fdatasync(file);
  }
  return 0;
}

void serve(const std::shared_ptr<Shared>& shared) {
  make_thread_prompt();
  std::unique_lock lock(shared->mutex);
  while (true) {
    shared->work.wait(lock, [&] { return shared->stop || !shared->requests.empty(); });
    if (shared->stop) return;
    const IoRequest request = shared->requests.pop();
    const int file = shared->files[static_cast<std::size_t>(request.file)];
    lock.unlock();
    const ssize_t moved = carry_out(request, file);
    const Bytes result = moved >= 0 ? moved : -errno;
    lock.lock();
    shared->completions.push({request.tag, result});
    shared->done.notify_one();
  }
}

class ThreadQueue final : public IoQueue {
 public:
  explicit ThreadQueue(const IoQueueOptions& options)
      : depth_(options.depth), log_(options.log), shared_(std::make_shared<Shared>(options.files, options.depth)) {
    // These threads take no signals: Ctrl-C must not interrupt a block half-way.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    threads_.reserve(static_cast<std::size_t>(depth_));
    int refused = 0;
    try {
      for (int i = 0; i < depth_; ++i) threads_.emplace_back(serve, shared_);
    } catch (const std::system_error& error) {
      refused = error.code().value();
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (refused != 0) {
      stop();
      for (std::thread& thread : threads_) thread.join();
      throw IoError(fmt::format("thread {} of the {} that NVMe requests need could not be started: {}", threads_.size() + 1,
                                depth_, std::generic_category().message(refused)),
                    "Allow the process more threads (ulimit -u) and address space (ulimit -v).");
    }
  }

  ~ThreadQueue() override {
    const auto deadline = std::chrono::steady_clock::now() + kPatienceAtEnd;
    IoCompletion completion;
    while (in_flight_ > 0 && std::chrono::steady_clock::now() < deadline) wait({&completion, 1}, std::chrono::milliseconds(100));
    stop();
    if (in_flight_ > 0 && log_) log_(fmt::format("{} NVMe requests still hang at the end of their queue", in_flight_));
    for (std::thread& thread : threads_) in_flight_ > 0 ? thread.detach() : thread.join();
  }

  void submit(std::span<const IoRequest> requests) override {
    SPILLWAY_CHECK(in_flight_ + static_cast<int>(requests.size()) <= depth_, "{} + {} requests in a queue of {}", in_flight_,
                   requests.size(), depth_);
    in_flight_ += static_cast<int>(requests.size());
    {
      const std::lock_guard lock(shared_->mutex);
      for (const IoRequest& request : requests) shared_->requests.push(request);
    }
    for (std::size_t i = 0; i < requests.size(); ++i) shared_->work.notify_one();
  }

  int wait(std::span<IoCompletion> completions, std::chrono::microseconds timeout) override {
    if (in_flight_ == 0 || completions.empty()) return 0;
    std::unique_lock lock(shared_->mutex);
    shared_->done.wait_for(lock, timeout, [&] { return !shared_->completions.empty(); });
    int count = 0;
    while (count < std::ssize(completions) && !shared_->completions.empty()) {
      completions[static_cast<std::size_t>(count++)] = shared_->completions.pop();
    }
    in_flight_ -= count;
    return count;
  }

  int depth() const noexcept override { return depth_; }
  IoQueueKind kind() const noexcept override { return IoQueueKind::threads; }

 private:
  void stop() {
    {
      const std::lock_guard lock(shared_->mutex);
      shared_->stop = true;
    }
    shared_->work.notify_all();
  }

  int depth_;
  LogSink log_;
  std::shared_ptr<Shared> shared_;
  std::vector<std::thread> threads_;  // one for each request that can be in flight
  int in_flight_ = 0;                 // submitted and not collected
};

}  // namespace

std::unique_ptr<IoQueue> make_thread_queue(const IoQueueOptions& options) { return std::make_unique<ThreadQueue>(options); }

}  // namespace spillway
